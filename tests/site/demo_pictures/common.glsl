// A renderer of still lifes: signed distance functions, one light with soft shadows, ambient occlusion and reflections.
// A scene defines LIGHT, EYE, TARGET and ZOOM, and two functions: `things` (distance and material of the nearest thing)
// and `surface` (colour and gloss of a material). Materials 0 and 1 are the ground and the wall.
precision highp float;
uniform vec2 size;
const float PI = 3.14159265;
#ifndef GROUND
#define GROUND vec3(.58, .42, .28)
#endif
#ifndef WALL
#define WALL vec3(.80, .76, .68)
#endif
#ifndef FAR
#define FAR vec3(.22, .36, .20)
#endif
#ifndef EXPOSURE
#ifdef OUTSIDE
#define EXPOSURE .68
#else
#define EXPOSURE .85
#endif
#endif
#ifndef LIGHT
#define LIGHT vec3(.75, .85, .65)
#endif
#ifndef SUN
#define SUN vec3(2.5, 2.25, 1.9)
#endif
#ifndef FILL
#define FILL vec3(.62, .68, .78)
#endif
#define SOFT .055 // the size of the light
#define AA 3 // samples per pixel
#ifndef ZOOM
#define ZOOM 3.2
#endif

float hash(vec3 p) { p = fract(p * .3183099 + .1) * 17.; return fract(p.x * p.y * p.z * (p.x + p.y + p.z)); }
float noise(vec3 x) {
  vec3 i = floor(x), f = fract(x);
  f = f * f * (3. - 2. * f);
  vec2 o = vec2(0, 1);
  return mix(
    mix(mix(hash(i), hash(i + o.yxx), f.x), mix(hash(i + o.xyx), hash(i + o.yyx), f.x), f.y),
    mix(mix(hash(i + o.xxy), hash(i + o.yxy), f.x), mix(hash(i + o.xyy), hash(i + o.yyy), f.x), f.y), f.z);
}
float fbm(vec3 p) { return .5 * noise(p) + .25 * noise(p * 2.03) + .125 * noise(p * 4.1) + .0625 * noise(p * 8.2); }
vec2 turn(vec2 p, float a) { return mat2(cos(a), -sin(a), sin(a), cos(a)) * p; }
float box(vec3 p, vec3 b, float r) { vec3 q = abs(p) - b + r; return length(max(q, 0.)) + min(max(q.x, max(q.y, q.z)), 0.) - r; }
float cyl(vec3 p, float r, float h, float e) { // upright
  vec2 d = abs(vec2(length(p.xz), p.y)) - vec2(r, h) + e;
  return min(max(d.x, d.y), 0.) + length(max(d, 0.)) - e;
}
float rod(vec3 p, vec3 a, vec3 b, float r, float s) { // from a to b, with a radius at each end
  vec3 pa = p - a, ba = b - a;
  float h = clamp(dot(pa, ba) / dot(ba, ba), 0., 1.);
  return (length(pa - ba * h) - mix(r, s, h)) * .92;
}
float ring(vec3 p, float R, float r) { return length(vec2(length(p.xz) - R, p.y)) - r; } // flat on the ground
float egg(vec3 p, vec3 r) { float k = length(p / r); return k * (k - 1.) / length(p / (r * r)); }
float blend(float a, float b, float k) { float h = max(k - abs(a - b), 0.) / k; return min(a, b) - h * h * k * .25; }
vec2 add(vec2 a, float d, float m) { return d < a.x ? vec2(d, m) : a; }
vec3 wood(vec3 p, vec3 light, vec3 dark) { // with its grain along x
  float n = fbm(p * vec3(.7, 4., 4.)), lines = .5 + .5 * sin(40. * n + 6. * p.z + 9. * p.y);
  return mix(light, dark, .55 * lines * n + .35 * noise(p * vec3(6., 70., 70.)) * n);
}

vec2 things(vec3 p);
void surface(float m, vec3 p, inout vec3 colour, inout float gloss);

vec2 map(vec3 p) {
  vec2 d = things(p);
#ifdef OUTSIDE
  d = add(d, p.y + HILLS(p), 0.);
#else
  d = add(d, p.y, 0.);
  d = add(d, p.z + BACK, 1.);
#ifndef STUDIO
  d = add(d, box(p - vec3(0, .06, -BACK), vec3(9., .06, .02), .005), 1.5);
#endif
#endif
  return d;
}
void paint(float m, vec3 p, inout vec3 colour, inout float gloss) {
  if (m < .5) {
#ifdef OUTSIDE
    colour = mix(GROUND, FAR, smoothstep(-6., -9., p.z)) * (.55 + .9 * fbm(p * 6.)) * (.75 + .5 * noise(p * vec3(60., 9., 60.)));
    gloss = 0.;
#elif defined(STUDIO)
    colour = wood(p * 1.3, GROUND, GROUND * .55);
    gloss = .25;
#else
    vec3 q = p * vec3(1., 1., 1.);
    float board = floor(q.z * 5.), along = q.x + 3.7 * hash(vec3(board, 3., 1.));
    colour = wood(vec3(along, board * 3.1, q.z), GROUND, GROUND * .6) * (.82 + .3 * hash(vec3(board, floor(along * .6), 2.)));
    float gap = abs(fract(q.z * 5.) - .5);
    colour *= smoothstep(.5, .475, gap) * .75 + .25;
    gloss = .3;
#endif
  } else if (m < 1.4) {
    colour = WALL * (.96 + .06 * fbm(p * 9.));
    gloss = 0.;
  } else if (m < 1.6) {
    colour = vec3(.85, .83, .78);
    gloss = .1;
  } else surface(m, p, colour, gloss);
}
vec3 sky(vec3 d) {
#ifdef OUTSIDE
  vec3 c = mix(vec3(.62, .80, .95), vec3(.10, .33, .72), pow(max(d.y, 0.), .5));
  float cloud = smoothstep(.42, .75, fbm(vec3(d.xz / (d.y + .12) * .9, 2.)));
  return mix(c, vec3(1.15), .8 * cloud * smoothstep(.0, .18, d.y));
#else
  float lamp = smoothstep(.55, .75, dot(d, normalize(LIGHT))) + .6 * smoothstep(.8, .9, d.y);
  return mix(vec3(.32, .29, .26), vec3(.75, .77, .8), .5 + .5 * d.y) + 1.2 * lamp;
#endif
}
vec3 slope(vec3 p) {
  vec2 e = vec2(.0007, -.0007);
  return normalize(e.xyy * map(p + e.xyy).x + e.yyx * map(p + e.yyx).x + e.yxy * map(p + e.yxy).x + e.xxx * map(p + e.xxx).x);
}
float march(vec3 o, vec3 d, float far) {
  float t = .003;
  for (int i = 0; i < 170; i++) {
    float h = map(o + d * t).x;
    if (h < .0004 * t + .0002) return t;
    t += h * .85;
    if (t > far) break;
  }
  return -1.;
}
float shade(vec3 o, vec3 d) {
  float light = 1., t = .012;
  for (int i = 0; i < 64; i++) {
    float h = map(o + d * t).x;
    light = min(light, .5 + .5 * h / (SOFT * t));
    if (light < 0. || t > 9.) break;
    t += clamp(h, .008, .25);
  }
  light = max(light, 0.);
  return light * light * (3. - 2. * light);
}
float crevice(vec3 p, vec3 n) {
  float sum = 0., weight = 1.;
  for (int i = 1; i < 7; i++) {
    float h = .015 + .055 * float(i * i) / 5.;
    sum += max(h - map(p + n * h).x, 0.) * weight;
    weight *= .62;
  }
  return clamp(1. - 1.9 * sum, 0., 1.);
}
vec3 look(vec3 o, vec3 d) {
  vec3 total = vec3(0), weight = vec3(1), sun = normalize(LIGHT);
  for (int bounce = 0; bounce < 2; bounce++) {
    float t = march(o, d, 40.);
    if (t < 0.) return total + weight * sky(d);
    vec3 p = o + d * t, n = slope(p), c = vec3(.5);
    float gloss = 0.;
    float m = map(p).y;
    paint(m, p, c, gloss);
    c = pow(max(c, 0.), vec3(1.75)); // scenes have colours as screens show them
    float occlusion = crevice(p, n), direct = max(dot(n, sun), 0.);
    if (direct > 0.) direct *= shade(p + n * .004, sun);
#ifdef WINDOW
    vec3 q = p + sun * (3. - p.x) / sun.x;
    vec2 pane = abs(vec2(q.z, q.y) - WINDOW);
    float edge = .05 + .04 * abs(q.x - p.x);
    direct *= .12 + .88 * smoothstep(1.25 + edge, 1.25 - edge, pane.x) * smoothstep(1.5 + edge, 1.5 - edge, pane.y)
      * (1. - .75 * smoothstep(.05 + edge, .0, pane.x)) * (1. - .75 * smoothstep(.05 + edge, 0., pane.y));
#endif
    vec3 fill = mix(vec3(.42, .34, .27), FILL, .5 + .5 * n.y);
    vec3 colour = c * (SUN * direct + fill * occlusion);
    vec3 h = normalize(sun - d);
    colour += gloss * direct * SUN * .5 * pow(max(dot(n, h), 0.), mix(12., 240., gloss));
#ifdef LAMP
    vec3 lamp = LAMP - p;
    colour += c * vec3(2.6, 1.5, .65) * max(.25 + .75 * dot(n, normalize(lamp)), 0.) * occlusion / (.35 + dot(lamp, lamp)) * step(m, 80.);
#endif
#ifdef OUTSIDE
    colour = mix(colour, vec3(.70, .79, .88), 1. - exp(-.0005 * t * t));
#endif
    float mirror = gloss * mix(.05, 1., pow(clamp(1. + dot(n, d), 0., 1.), 5.)) * occlusion;
    if (m > 80.) mirror = .55; // metal
    total += weight * colour * (1. - mirror);
    weight *= mirror * (m > 80. ? c : vec3(1));
    if (mirror < .02) break;
    o = p + n * .004;
    d = reflect(d, n);
  }
  return total;
}
void main() {
  vec3 o = EYE, f = normalize(TARGET - o), r = normalize(cross(f, vec3(0, 1, 0))), u = cross(r, f), sum = vec3(0);
  for (int k = 0; k < AA; k++) {
    float i = float(k);
    vec2 jitter = vec2(fract(i * .5 + .25), fract(i * .381966 + .125 + floor(i * .5) * .25)) - .5;
    vec2 at = (2. * (gl_FragCoord.xy + jitter) - size) / size.y;
    vec3 c = look(o, normalize(f * ZOOM + r * at.x + u * at.y)) * EXPOSURE;
    sum += clamp(c * (2.51 * c + .03) / (c * (2.43 * c + .59) + .14), 0., 1.);
  }
  vec2 v = gl_FragCoord.xy / size - .5;
  vec3 c = pow(sum / float(AA), vec3(1. / 2.2)) * (1. - .45 * dot(v, v));
  gl_FragColor = vec4(c, 1);
}
