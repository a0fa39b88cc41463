//# table
#define ZOOM 3.7
#define BACK 1.9
#define EYE vec3(-2.1, 1.75, 3.9)
#define TARGET vec3(0, .52, 0)
#define WINDOW vec2(.6, 2.5)
#define WALL vec3(.62, .70, .66)
float chair(vec3 p) {
  float d = box(p - vec3(0, .45, 0), vec3(.2, .018, .19), .015);
  vec3 q = vec3(abs(p.x), p.yz);
  d = min(d, rod(q, vec3(.17, .44, -.16), vec3(.18, 0, -.18), .02, .015));
  d = min(d, rod(q, vec3(.18, 0, .2), vec3(.17, .95, .22), .018, .018));
  for (int i = 0; i < 3; i++) d = min(d, box(p - vec3(0, .64 + .13 * float(i), .2 + .012 * float(i)), vec3(.17, .03, .009), .008));
  return d;
}
vec2 things(vec3 p) {
  vec2 d = vec2(box(p - vec3(0, .75, 0), vec3(1.05, .025, .45), .012), 2.);
  d = add(d, box(p - vec3(0, .69, 0), vec3(.95, .045, .36), .005), 2.);
  d = add(d, box(vec3(abs(p.x), p.y, abs(p.z)) - vec3(.93, .36, .34), vec3(.035, .36, .035), .008), 2.);
  for (int i = -1; i < 2; i++) d = add(d, chair(vec3(p.x - .62 * float(i), p.y, abs(p.z) - .5)), 3.);
  float bowl = max(abs(length(p - vec3(.1, .97, 0)) - .19) - .006, p.y - .93);
  d = add(d, bowl, 4.);
  d = add(d, cyl(p - vec3(.1, .785, 0), .07, .012, .004), 4.);
  vec3 q = p - vec3(.1, .885, 0);
  q.xz = turn(q.xz, .5);
  d = add(d, min(length(vec3(abs(q.x) - .06, q.y, q.z)) - .056, length(vec3(q.x, q.y - .05, abs(q.z) - .05)) - .055), 5.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .35;
  if (m < 2.5) c = wood(p * vec3(1, 2, 2), vec3(.60, .27, .12), vec3(.30, .11, .05));
  else if (m < 3.5) c = wood(p.yxz * 2., vec3(.52, .22, .10), vec3(.27, .10, .05));
  else if (m < 4.5) c = vec3(.88, .87, .82), g = .8;
  else c = mix(vec3(.75, .12, .08), vec3(.85, .62, .12), smoothstep(.4, .7, noise(p * 9.))), g = .5;
}
//# vase
#define STUDIO
#define BACK 2.2
#define EYE vec3(.5, 1.25, 4.2)
#define TARGET vec3(-.02, .58, 0)
#define WALL vec3(.36, .47, .47)
#define GROUND vec3(.50, .33, .20)
vec2 things(vec3 p) {
  float body = egg(p - vec3(0, .42, 0), vec3(.72, .40, .40));
  body = blend(body, rod(p, vec3(.45, .5, 0), vec3(.85, .78, 0), .16, .02), .22);
  vec3 q = p - vec3(-.58, .98, 0);
  float arc = length(vec2(length(q.xy) - .24, q.z)) - .085;
  arc = max(arc, -q.y + q.x * .4 - .08);
  float neck = blend(arc, rod(p, vec3(-.36, .9, 0), vec3(-.42, .5, 0), .085, .16), .12);
  neck = blend(neck, rod(p, vec3(-.82, .99, 0), vec3(-.85, .84, 0), .085, .07), .06);
  body = blend(body, neck, .16);
  body = blend(body, cyl(p - vec3(0, .03, 0), .32, .03, .02), .08);
  float wing = egg(vec3(p.x - .12, p.y - .5, abs(p.z) - .36), vec3(.5, .24, .09));
  body = blend(body, wing + .012 * sin(22. * (p.x + p.y * .8)), .05);
  body = max(body, -egg(p - vec3(.08, .86, 0), vec3(.46, .30, .24)));
  vec2 d = vec2(body * .8, 2.);
  d = add(d, rod(p, vec3(-.86, .82, 0), vec3(-.91, .69, 0), .045, .012), 3.);
  for (int i = 0; i < 5; i++) {
    float a = float(i) * 1.26;
    vec3 tip = vec3(.1 + .42 * cos(a), 1.32 + .12 * sin(a * 2.3), .34 * sin(a));
    d = add(d, rod(p, vec3(.08, .6, 0), tip, .014, .010), 4.);
    vec3 o = p - tip;
    float flower = egg(o, vec3(.13, .09, .13)) + .03 * sin(8. * atan(o.z, o.x)) * smoothstep(.02, .13, length(o.xz));
    d = add(d, flower * .7, 5.);
    d = add(d, length(o - vec3(0, .07, 0)) - .045, 6.);
  }
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .75;
  if (m < 2.5) c = vec3(.90, .89, .85);
  else if (m < 3.5) c = vec3(.75, .42, .12);
  else if (m < 4.5) c = vec3(.20, .36, .14), g = .1;
  else if (m < 5.5) c = mix(vec3(.93, .86, .80), vec3(.88, .45, .50), noise(p * 5.)), g = .05;
  else c = vec3(.85, .60, .10), g = 0.;
}
//# records
#define STUDIO
#define BACK 1.6
#define EYE vec3(-.7, 1.55, 4.1)
#define TARGET vec3(.06, .62, 0)
#define WALL vec3(.52, .42, .33)
vec3 tilted(vec3 p) { p -= vec3(-.28, 0, .08); p.yz = turn(p.yz, .22); return p; }
vec2 things(vec3 p) {
  vec3 q = tilted(p);
  vec2 d = vec2(box(q - vec3(0, .66, 0), vec3(.66, .66, .012), .006), 2.);
  vec3 v = q - vec3(.52, .66, -.035);
  float disc = cyl(v.xzy, .63, .009, .003);
  d = add(d, disc, 3.);
  vec3 b = p - vec3(.30, .33, -.35);
  float crate = max(box(b - vec3(.35, 0, 0), vec3(.62, .33, .5), .01), -box(b - vec3(.35, .1, 0), vec3(.58, .4, .46), .0));
  d = add(d, crate, 4.);
  for (int i = 0; i < 9; i++) {
    vec3 s = b - vec3(.35, .32 + .03 * hash(vec3(i, 1, 2)), -.4 + .1 * float(i));
    s.yz = turn(s.yz, .12);
    d = add(d, box(s, vec3(.54, .32, .012), .003), 5. + float(i) * .1);
  }
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .25;
  vec3 q = tilted(p);
  if (m < 2.5) {
    vec2 s = q.xy - vec2(0, .66);
    float sun = length(s - vec2(0, .1));
    c = mix(vec3(.93, .80, .52), vec3(.85, .38, .20), smoothstep(-.1, .6, s.y));
    if (sun < .3) c = vec3(.95, .88, .66);
    if (s.y < -.1 + .16 * noise(vec3(s.x * 4., 1., 0.))) c = vec3(.20, .42, .44);
    if (s.y < -.26 + .14 * noise(vec3(s.x * 5., 4., 0.))) c = vec3(.09, .26, .28);
    if (s.y > .47 && s.y < .54 && abs(s.x) < .42 && noise(vec3(s.x * 30., 0., 7.)) > .38) c = vec3(.2, .1, .08);
  } else if (m < 3.5) {
    vec2 s = q.xy - vec2(.52, .66);
    float r = length(s);
    c = vec3(.016) + .02 * smoothstep(.3, 1., sin(r * 400.)) ;
    g = .55 + .2 * sin(r * 90.);
    if (r < .22) c = vec3(.70, .16, .11), g = .2;
    if (r < .18 && abs(s.y) > .07 && abs(s.y) < .09) c = vec3(.92, .86, .72);
    if (r < .02) c = vec3(.9);
  } else if (m < 4.5) c = wood(p * 2., vec3(.66, .46, .27), vec3(.42, .26, .13));
  else c = .5 + .42 * cos(6.3 * (m * 7.3 + vec3(0, .33, .67))), c = mix(c, vec3(.7, .6, .5), .4);
}
//# tools
#define STUDIO
#define BACK 2.4
#define EYE vec3(.9, 2.2, 3.5)
#define TARGET vec3(0, .22, .05)
#define GROUND vec3(.62, .45, .28)
#define WALL vec3(.45, .44, .42)
vec3 hammer(vec3 p) { p -= vec3(-.1, .07, .62); p.xz = turn(p.xz, .35); return p; }
vec2 things(vec3 p) {
  vec3 b = p - vec3(-.15, .28, -.45);
  b.xz = turn(b.xz, -.22);
  float crate = max(box(b, vec3(1.05, .28, .42), .015), -box(b - vec3(0, .08, 0), vec3(1.0, .3, .37), .0));
  vec2 d = vec2(crate, 2.);
  d = add(d, box(vec3(abs(b.x) - 1.02, b.y - .28, b.z), vec3(.03, .34, .12 ), .02), 2.);
  d = add(d, rod(b, vec3(-1.02, .54, 0), vec3(1.02, .54, 0), .035, .035), 3.);
  vec3 h = hammer(p);
  d = add(d, rod(h, vec3(-.75, 0, 0), vec3(.45, 0, 0), .055, .036), 3.);
  d = add(d, blend(cyl((h - vec3(.5, .01, .14)).xzy, .075, .09, .012), box(h - vec3(.5, .01, -.06), vec3(.05, .05, .16), .02), .05), 81.);
  d = add(d, box(h - vec3(.5, .01, -.22), vec3(.045, .022, .07), .01), 81.);
  for (int i = 0; i < 3; i++) {
    float x = .78 + .24 * float(i);
    vec3 c = p - vec3(x, .05, .5 - .1 * float(i));
    c.xz = turn(c.xz, -.25);
    d = add(d, rod(c, vec3(0, 0, .05), vec3(0, 0, .52), .055, .048), 4. + .1 * float(i));
    d = add(d, cyl((c - vec3(0, 0, .03)).xzy, .05, .025, .005), 82.);
    d = add(d, box(c - vec3(0, 0, -.3), vec3(.03 + .012 * float(i), .010 + .004 * clamp(c.z + .6, 0., .5), .3), .004), 81.);
  }
  vec3 s = b - vec3(.1, .42, .12);
  s.xy = turn(s.xy, -.35);
  d = add(d, box(s - vec3(.1, -.02, 0), vec3(.8, .14 - .07 * clamp(s.x, -.8, .8), .008), .002), 81.);
  vec3 t = s - vec3(-.82, 0, 0);
  float grip = max(box(t, vec3(.19, .18, .035), .03), -box(t - vec3(-.02, 0, 0), vec3(.09, .085, .1), .04));
  d = add(d, grip, 3.);
  vec3 l = b - vec3(-.35, .44, -.16);
  l.xy = turn(l.xy, .12);
  d = add(d, box(l, vec3(.6, .06, .035), .01), 5.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .3;
  if (m < 2.5) c = wood(p * 1.7, vec3(.45, .36, .26), vec3(.25, .18, .12)), g = .1;
  else if (m < 3.5) c = wood(p * 3., vec3(.72, .47, .25), vec3(.48, .27, .12));
  else if (m < 4.9) c = m < 4.05 ? vec3(.75, .50, .12) : wood(p.zyx * 3., vec3(.60, .30, .14), vec3(.36, .16, .07)), g = .6;
  else if (m < 5.5) c = vec3(.80, .62, .10), g = .5;
  else c = vec3(.62, .63, .65) * (.85 + .2 * fbm(p * 14.)), g = .6;
}
//# canoe
#define ZOOM 2.5
#define OUTSIDE
#define HILLS(p) (-.06 * noise(p * 1.7) + .3 * smoothstep(.9, 2.4, -p.z) - 5.5 * smoothstep(11., 19., -p.z) * fbm(vec3(p.x * .16, 0., p.z * .13 + 3.)))
#define EYE vec3(-2.6, 1.7, 4.6)
#define TARGET vec3(.1, .25, -.3)
#define GROUND vec3(.72, .64, .50)
#define LIGHT vec3(-.5, .75, .55)
#define SUN vec3(2.6, 2.4, 2.1)
#define FILL vec3(.55, .66, .85)
vec3 boat(vec3 p) { p -= vec3(.1, .06, .2); p.xz = turn(p.xz, .38); p.xy = turn(p.xy, .0); return p; }
float hull(vec3 q, float grow) {
  float x = q.x / 2.1, w = .46 * sqrt(max(1. - x * x, 0.)) + grow, rise = .26 * x * x * x * x + .06 * x * x;
  vec2 s = vec2(abs(q.z) / max(w, .02), (q.y - .48 - rise) / (.48 + grow));
  return (length(s) - 1.) * min(w, .42) * .55;
}
vec2 things(vec3 p) {
  vec3 q = boat(p);
  float x = q.x / 2.1, rim = .44 + .26 * x * x * x * x + .06 * x * x;
  float shell = max(max(hull(q, 0.), -hull(q, -.035)), q.y - rim);
  shell = max(shell, abs(q.x) - 2.08);
  vec2 d = vec2(shell * .8, 2.);
  float w = .46 * sqrt(max(1. - x * x, 0.));
  d = add(d, max(length(vec2(abs(q.z) - w, q.y - rim)) - .026, abs(q.x) - 2.05) * .6, 3.);
  for (int i = 0; i < 2; i++) d = add(d, box(q - vec3(-.95 + 1.9 * float(i), .38, 0), vec3(.13, .014, .40), .01), 3.);
  d = add(d, box(q - vec3(0, .43, 0), vec3(.035, .02, .45), .01), 3.);
  vec3 a = q - vec3(.25, .50, .05);
  a.xz = turn(a.xz, -.32);
  d = add(d, rod(a, vec3(-.85, 0, 0), vec3(.75, 0, 0), .02, .02), 4.);
  d = add(d, egg(a - vec3(1.0, 0, 0), vec3(.33, .018, .11)) * .8, 4.);
  d = add(d, p.y - .015 - .012 * sin(5. * p.z + 2. * noise(p * 2.)) + 3. * smoothstep(-1.4, -.9, p.z + .25 * sin(p.x)), 6.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .45;
  if (m < 2.5) { vec3 q = boat(p); c = hull(q, -.02) < 0. ? wood(q * vec3(1, 3, 6), vec3(.66, .42, .20), vec3(.40, .22, .09)) : vec3(.55, .07, .045); }
  else if (m < 3.5) c = wood(boat(p) * 2., vec3(.55, .30, .13), vec3(.33, .16, .07));
  else if (m < 4.5) c = wood(p * 2., vec3(.75, .55, .30), vec3(.52, .35, .17));
  else c = mix(vec3(.12, .33, .36), vec3(.03, .16, .24), smoothstep(-1.5, -7., p.z)), g = .9;
}
//# desk
#define BACK 1.2
#define EYE vec3(1.7, 1.6, 3.6)
#define TARGET vec3(0, .52, 0)
#define WINDOW vec2(.4, 2.3)
#define WALL vec3(.72, .66, .56)
vec2 things(vec3 p) {
  vec2 d = vec2(box(p - vec3(0, .75, 0), vec3(.95, .025, .42), .012), 2.);
  d = add(d, box(p - vec3(0, .64, 0), vec3(.88, .09, .37), .006), 2.);
  d = add(d, rod(vec3(abs(p.x), p.y, abs(p.z)), vec3(.83, .58, .32), vec3(.88, 0, .36), .035, .018), 2.);
  for (int i = -1; i < 2; i++) {
    vec3 q = p - vec3(.575 * float(i), .64, .375);
    d = add(d, box(q, vec3(.265, .07, .012), .006), 3. + .1 * float(i));
    d = add(d, length(q - vec3(0, 0, .035)) - .017, 81.);
  }
  vec3 l = p - vec3(-.62, .775, -.08);
  d = add(d, cyl(l - vec3(0, .012, 0), .13, .014, .008), 4.);
  d = add(d, min(rod(l, vec3(0, 0, 0), vec3(-.12, .38, 0), .012, .012), rod(l, vec3(-.12, .38, 0), vec3(.16, .58, .05), .012, .012)), 81.);
  vec3 s = l - vec3(.2, .56, .06);
  s.xy = turn(s.xy, -.5);
  d = add(d, max(abs(rod(s, vec3(0, .07, 0), vec3(0, -.09, 0), .04, .13)) - .005, -s.y - .085), 4.);
  vec3 b = p - vec3(.5, .80, -.1);
  b.xz = turn(b.xz, .3);
  d = add(d, box(b, vec3(.17, .022, .12), .006), 5.);
  b.xz = turn(b.xz, -.5);
  d = add(d, box(b - vec3(0, .042, 0), vec3(.15, .018, .11), .006), 6.);
  vec3 m = p - vec3(.02, .83, .05);
  d = add(d, max(cyl(m, .055, .055, .008), -cyl(m - vec3(0, .02, 0), .048, .055, .0)), 7.);
  d = add(d, max(ring((m - vec3(.06, 0, 0)).xzy, .033, .009), .045 - m.x), 7.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .4;
  if (m < 2.5) c = wood(p * vec3(1, 2, 2), vec3(.68, .43, .20), vec3(.42, .23, .09));
  else if (m < 3.5) c = wood(p * vec3(1.3, 2, 2) + m * 9., vec3(.70, .45, .21), vec3(.45, .25, .10));
  else if (m < 4.5) c = vec3(.10, .28, .24), g = .7;
  else if (m < 5.5) c = abs(p.y - .80) < .015 && p.z > -.08 ? vec3(.9, .87, .8) : vec3(.52, .13, .10), g = .1;
  else if (m < 6.5) c = vec3(.16, .25, .40), g = .1;
  else if (m < 7.5) c = vec3(.87, .84, .76), g = .7;
  else c = vec3(.85, .62, .28), g = .7;
}
//# books
#define BACK .45
#define EYE vec3(1.0, 1.25, 4.4)
#define TARGET vec3(0, .93, 0)
#define WALL vec3(.42, .50, .47)
#define WINDOW vec2(.9, 2.5)
vec2 things(vec3 p) {
  p.y -= .05;
  float shelf = min(box(vec3(abs(p.x) - .82, p.y - .92, p.z + .15), vec3(.03, .95, .22), .005), box(p - vec3(0, .92, -.36), vec3(.82, .95, .01), .0));
  for (int i = 0; i < 5; i++) shelf = min(shelf, box(p - vec3(0, .02 + .455 * float(i), -.15), vec3(.82, .02, .22), .004));
  vec2 d = vec2(shelf, 2.);
  for (int row = 0; row < 4; row++) {
    float y = .04 + .455 * float(row), x = floor((p.x + .8) / .082);
    float gap = row == 2 ? .62 : row == 1 ? .25 : .9;
    for (int k = -1; k < 2; k++) {
      float i = clamp(x + float(k), 0., 18.), middle = -.8 + .082 * (i + .5), h = .13 + .065 * hash(vec3(i, row, 3));
      if (row == 2 && i > 12. || row == 1 && i < 5.) continue;
      vec3 q = p - vec3(middle, y + h, -.12 + .02 * hash(vec3(i, row, 5)));
      if (hash(vec3(i, row, 9)) > .85) q.xy = turn(q.xy, -.07);
      d = add(d, box(q, vec3(.030 + .009 * hash(vec3(i, row, 7)), h, .13), .008), 3. + (i + 20. * float(row)) / 100.);
    }
  }
  vec3 v = p - vec3(.52, .95 + .14, -.08);
  d = add(d, blend(egg(v - vec3(0, -.02, 0), vec3(.13, .12, .13)), cyl(v - vec3(0, .1, 0), .045, .06, .01), .06), 5.);
  vec3 b = p - vec3(-.6, .52, -.1);
  for (int i = 0; i < 3; i++) { d = add(d, box(b - vec3(.01 * float(i), .03 + .055 * float(i), 0), vec3(.16 - .02 * float(i), .025, .12), .006), 3.9 + .03 * float(i)); }
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .3;
  if (m < 2.5) c = wood(p.yxz * 1.5, vec3(.58, .38, .22), vec3(.36, .21, .11));
  else if (m < 4.5) {
    float h = hash(vec3(m * 100., 2., 4.));
    c = h < .2 ? vec3(.52, .16, .12) : h < .4 ? vec3(.16, .28, .38) : h < .55 ? vec3(.20, .36, .26) : h < .7 ? vec3(.78, .66, .46) : h < .85 ? vec3(.30, .20, .16) : vec3(.80, .52, .20);
    c *= .75 + .4 * hash(vec3(m * 77., 1, 1));
    float y = fract((p.y - .09) / .455);
    if (m < 3.89 && (abs(y - .12) < .012 || abs(y - .42) < .012)) c = vec3(.80, .68, .38);
    g = .15;
  } else c = vec3(.20, .42, .50), g = .8;
}
//# sofa
#define ZOOM 3.6
#define BACK 1.2
#define EYE vec3(-1.3, 1.5, 4.9)
#define TARGET vec3(0, .5, 0)
#define WALL vec3(.80, .75, .66)
#define WINDOW vec2(.2, 2.4)
vec2 things(vec3 p) {
  vec2 d = vec2(box(p - vec3(0, .28, 0), vec3(1.12, .12, .46), .05), 2.);
  d = add(d, box(vec3(abs(p.x) - 1.15, p.y - .42, p.z), vec3(.12, .26, .48), .09), 2.);
  vec3 b = p - vec3(0, .62, -.38);
  b.yz = turn(b.yz, .16);
  d = add(d, box(b, vec3(1.1, .34, .12), .09), 2.);
  float x = clamp(floor(p.x / .69 + .5), -1., 1.);
  vec3 s = p - vec3(.69 * x, .46, .06);
  d = add(d, box(s - vec3(0, .02 * cos(4. * s.x) * cos(3. * s.z), 0), vec3(.338, .085, .40), .07), 3.);
  vec3 k = b - vec3(.69 * x, .06, .16);
  d = add(d, box(k - vec3(0, 0, .03 * cos(4. * k.x) * cos(4. * k.y)), vec3(.33, .24, .09), .08), 3.);
  vec3 c = p - vec3(-.78, .72, .05);
  c.yz = turn(c.yz, .4); c.xy = turn(c.xy, .25);
  d = add(d, box(c - vec3(0, 0, .07 * cos(4. * c.x) * cos(4. * c.y)), vec3(.22, .22, .05), .05) * .8, 4.);
  d = add(d, rod(vec3(abs(p.x), p.y, abs(p.z)), vec3(1.05, .18, .36), vec3(1.1, 0, .4), .03, .018), 5.);
  d = add(d, box(p - vec3(0, .006, .35), vec3(1.7, .006, 1.0), .005), 6.);
  vec3 t = p - vec3(1.75, 0, .05);
  d = add(d, cyl(t - vec3(0, .52, 0), .27, .018, .012), 5.);
  d = add(d, rod(vec3(abs(t.x), t.y, abs(t.z)), vec3(.06, .52, .06), vec3(.2, 0, .2), .016, .014), 5.);
  d = add(d, blend(egg(t - vec3(0, .65, 0), vec3(.1, .12, .1)), cyl(t - vec3(0, .76, 0), .04, .06, .01), .05), 7.);
  for (int i = 0; i < 6; i++) { float a = float(i); d = add(d, egg(t - vec3(.11 * cos(a * 1.1), .95 + .05 * sin(a * 2.), .11 * sin(a * 1.1)), vec3(.05, .13, .05)), 8.); }
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  float weave = .88 + .2 * noise(p * 55.);
  g = 0.;
  if (m < 3.5) c = vec3(.13, .31, .22) * weave;
  else if (m < 4.5) c = (mod(floor(p.x * 14. + p.y * 3.), 2.) < .5 ? vec3(.80, .56, .18) : vec3(.86, .78, .62)) * weave;
  else if (m < 5.5) c = wood(p * 2., vec3(.60, .38, .20), vec3(.38, .22, .10)), g = .3;
  else if (m < 6.5) c = mix(vec3(.76, .70, .60), vec3(.55, .30, .22), step(.8, abs(p.x) / 1.7 + .0) * step(abs(abs(p.x) - 1.5), .08)) * weave;
  else if (m < 7.5) c = vec3(.85, .82, .76), g = .6;
  else c = vec3(.22, .36, .16);
}
//# lamp
#define ZOOM 3.0
#define BACK 1.3
#define EYE vec3(.2, 1.35, 4.6)
#define TARGET vec3(.05, .93, 0)
#define LAMP vec3(-.55, 1.42, -.2)
#define WALL vec3(.48, .44, .46)
#define SUN vec3(.75, .80, .95)
#define FILL vec3(.40, .40, .48)
#define EXPOSURE 1.05
vec2 things(vec3 p) {
  vec3 l = p - vec3(-.55, 0, -.35);
  vec2 d = vec2(cyl(l - vec3(0, .025, 0), .2, .025, .015), 81.);
  d = add(d, rod(l, vec3(0, .02, 0), vec3(0, 1.42, 0), .018, .018), 81.);
  d = add(d, egg(l - vec3(0, .75, 0), vec3(.04, .06, .04)), 81.);
  float y = l.y - 1.52;
  d = add(d, max(abs(length(l.xz) - (.25 - .32 * y)) - .006, abs(y) - .19) * .85, 3.);
  d = add(d, length(l - vec3(0, 1.47, 0)) - .06, 4.);
  vec3 q = p - vec3(.6, 0, -.1);
  q.xz = turn(q.xz, .55);
  d = add(d, box(q - vec3(0, .40, 0), vec3(.36, .10, .36), .07), 5.);
  vec3 b = q - vec3(0, .72, -.33);
  b.yz = turn(b.yz, .2);
  d = add(d, box(b, vec3(.38, .38, .08), .07), 5.);
  d = add(d, box(vec3(abs(q.x) - .42, q.y - .46, q.z), vec3(.06, .16, .37), .05), 5.);
  d = add(d, rod(vec3(abs(q.x), q.y, abs(q.z)), vec3(.34, .3, .3), vec3(.38, 0, .35), .028, .018), 6.);
  vec3 k = q - vec3(.02, .62, -.12);
  k.yz = turn(k.yz, .35);
  d = add(d, box(k - vec3(0, 0, .05 * cos(5. * k.x) * cos(5. * k.y)), vec3(.2, .17, .05), .045) * .8, 7.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = 0.;
  if (m < 3.5) { float y = (p.y - 1.52) / .19; c = vec3(2.6, 1.75, .85) * (1.25 - .25 * y * y); }
  else if (m < 4.5) c = vec3(9., 6.5, 3.5);
  else if (m < 5.5) c = vec3(.30, .12, .10) * (.85 + .25 * noise(p * 60.));
  else if (m < 6.5) c = vec3(.2, .12, .07), g = .4;
  else if (m < 7.5) c = vec3(.72, .58, .32) * (.85 + .25 * noise(p * 60.));
  else c = vec3(.95, .66, .26), g = .8;
}
//# clock
#define BACK .5
#define EYE vec3(.55, 1.35, 3.6)
#define TARGET vec3(.02, 1.28, -.3)
#define WALL vec3(.42, .52, .50)
#define WINDOW vec2(.1, 2.9)
#define LIGHT vec3(.95, .7, .75)
vec2 things(vec3 p) {
  vec3 q = (p - vec3(0, 1.32, -.42)).xzy;
  vec2 d = vec2(cyl(q, .72, .05, .01), 2.);
  d = add(d, ring(q - vec3(0, .07, 0), .72, .075), 3.);
  d = add(d, ring(q - vec3(0, .075, 0), .63, .018), 81.);
  vec3 h = p - vec3(0, 1.32, -.345);
  vec3 a = h; a.xy = turn(a.xy, 1.05);
  d = add(d, box(a - vec3(0, .15, 0), vec3(.022, .24, .004), .002), 4.);
  vec3 b = h - vec3(0, 0, .012); b.xy = turn(b.xy, -1.0);
  d = add(d, box(b - vec3(0, .22, 0), vec3(.014, .33, .004), .002), 4.);
  d = add(d, cyl((h - vec3(0, 0, .012)).xzy, .035, .014, .004), 81.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  vec2 s = p.xy - vec2(0, 1.32);
  float r = length(s), a = atan(s.x, s.y) / (2. * PI) * 12., hour = abs(fract(a + .5) - .5), minute = abs(fract(a * 5. + .5) - .5);
  g = .25;
  if (m < 2.5) {
    c = vec3(.90, .86, .75) * (.9 + .14 * fbm(p * 5.));
    if (r > .46 && r < .57 && hour < .055 + .03 * step(.5, abs(fract(a / 3. + .5) - .5) < .1 ? 1. : 0.)) c = vec3(.05);
    if (r > .585 && r < .61 && minute < .16) c = vec3(.07);
    if (abs(s.y + .24) < .012 && abs(s.x) < .15 && noise(vec3(s.x * 60., 1., 1.)) > .35) c = vec3(.15, .13, .1);
  } else if (m < 3.5) c = wood(vec3(a * .4, r * 3., p.z * 2.), vec3(.40, .20, .10), vec3(.20, .09, .05)), g = .55;
  else if (m < 4.5) c = vec3(.03, .03, .05), g = .4;
  else c = vec3(.90, .70, .34), g = .7;
}
//# firewood
#define ZOOM 2.9
#define OUTSIDE
#define HILLS(p) (-.05 * noise(p * 3.) - 7. * smoothstep(7., 16., -p.z) * fbm(vec3(p.x * .2, 1., p.z * .15)))
#define EYE vec3(1.4, 1.25, 4.0)
#define TARGET vec3(0, .66, 0)
#define GROUND vec3(.30, .38, .16)
#define LIGHT vec3(.7, .75, .7)
#define SUN vec3(2.7, 2.4, 1.95)
#define FILL vec3(.50, .60, .78)
vec3 logAt(vec2 cell) { return vec3(hash(vec3(cell, 1.)), hash(vec3(cell, 2.)), hash(vec3(cell, 3.))); }
vec2 things(vec3 p) {
  vec2 d = vec2(1e3, 2.);
  float row0 = floor(p.y / .19);
  for (int k = -1; k < 2; k++) {
    float row = clamp(row0 + float(k), 0., 6.), off = mod(row, 2.) * .5;
    float col0 = floor(p.x / .225 - off + .5);
    for (int j = -1; j < 2; j++) {
      float col = clamp(col0 + float(j), -6., 6. - off * 2.);
      vec3 h = logAt(vec2(col, row));
      vec3 q = p - vec3((col + off) * .225, .115 + row * .19, .08 * h.x - .1);
      q.xy = turn(q.xy, 6.3 * h.y);
      float l = cyl(q.xzy, .102 + .008 * h.z + .006 * noise(vec3(q.xy * 12., col)), .42, .006);
      if (h.z > .5) l = max(l, q.x - .05 - .03 * h.y);
      d = add(d, l, 2. + .02 * (col + 8. + 14. * row));
    }
  }
  vec3 a = p - vec3(-.5, .1, .95);
  d = add(d, cyl(a - vec3(0, .14, 0), .34 + .015 * noise(p * 9.), .24, .01), 5.);
  vec3 x = p - vec3(-.42, .48, .95);
  x.xy = turn(x.xy, -.55);
  d = add(d, rod(x, vec3(0, 0, 0), vec3(0, 1.05, 0), .03, .026), 6.);
  float blade = box(x - vec3(.08, .06, 0), vec3(.15, .07 + .1 * clamp(x.x, 0., .25), .035 - .13 * clamp(x.x - .02, 0., .25)), .006);
  d = add(d, blade * .7, 81.);
  d = add(d, box(vec3(abs(p.x) - 1.55, p.y - .72, p.z + .1), vec3(.05, .74, .05), .01), 6.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = 0.;
  if (m < 4.9) {
    float i = floor((m - 2.) / .02 + .5), row = floor(i / 14.), col = i - 14. * row - 8.;
    vec3 h = logAt(vec2(col, row));
    vec2 q = p.xy - vec2((col + mod(row, 2.) * .5) * .225, .115 + row * .19);
    float r = length(q), end = .08 * h.x - .1 + .415;
    vec3 face = mix(vec3(.82, .62, .38), vec3(.62, .40, .20), .5 + .5 * sin(r * 190. + 4. * fbm(vec3(q * 14., i)))) * (.75 + .35 * h.y);
    c = p.z > end && r < .098 ? face : vec3(.26, .18, .12) * (.6 + .8 * fbm(p * vec3(30., 30., 5.)));
    if (h.z > .5 && r < .095 && p.z < end) c = mix(c, wood(p.zyx * 2., vec3(.75, .55, .33), vec3(.55, .36, .18)), .9);
  } else if (m < 5.5) {
    float r = length(p.xz - vec2(-.5, .95));
    c = p.y > .475 ? mix(vec3(.74, .56, .34), vec3(.52, .34, .18), .5 + .5 * sin(r * 90. + 3. * fbm(p * 6.))) : vec3(.24, .17, .12) * (.6 + .8 * fbm(p * vec3(20., 5., 20.)));
  } else if (m < 6.5) c = wood(p.yxz * 2., vec3(.60, .42, .24), vec3(.40, .26, .13)), g = .15;
  else c = vec3(.55, .56, .58), g = .6;
}
//# bicycle
#define OUTSIDE
#define HILLS(p) (-.02 * noise(p * 4.) - 8. * smoothstep(8., 18., -p.z) * fbm(vec3(p.x * .15, 4., p.z * .14)))
#define EYE vec3(-1.0, 1.15, 4.7)
#define TARGET vec3(0, .58, 0)
#define GROUND vec3(.32, .42, .18)
#define LIGHT vec3(-.6, .8, .65)
#define SUN vec3(2.6, 2.35, 2.0)
#define FILL vec3(.52, .62, .80)
float wheel(vec3 p) { return ring(p.xzy, .46, .028); }
vec2 spokes(vec2 d, vec3 p) {
  float a = atan(p.y, p.x), n = 2. * PI / 20., b = (fract(a / n) - .5) * n, r = length(p.xy);
  vec3 q = vec3(r * cos(b), r * sin(b), p.z);
  d = add(d, max(length(vec2(q.y, abs(q.z) - .03 * (1. - r / .43))) - .0045, r - .43), 82.);
  d = add(d, ring(p.xzy, .425, .014), 82.);
  return add(d, cyl(p.xzy, .03, .055, .006), 82.);
}
vec2 things(vec3 p) {
  p.y -= .0;
  vec3 f = p - vec3(.86, .5, 0), b = p - vec3(-.86, .5, 0);
  vec2 d = vec2(min(wheel(f), wheel(b)), 2.);
  d = spokes(d, f);
  d = spokes(d, b);
  vec3 seat = vec3(-.36, 1.05, 0), pedal = vec3(-.14, .44, 0), head = vec3(.58, 1.1, 0), low = vec3(.65, .9, 0), rear = vec3(-.86, .5, 0);
  float t = min(rod(p, seat, pedal, .030, .030), min(rod(p, seat + vec3(.02, -.06, 0), head, .028, .028), rod(p, pedal, low, .034, .034)));
  t = min(t, rod(p, head + vec3(-.02, .05, 0), low, .036, .036));
  vec3 q = vec3(p.xy, abs(p.z));
  t = min(t, rod(q, pedal + vec3(0, 0, .03), rear + vec3(0, 0, .06), .017, .013));
  t = min(t, rod(q, seat + vec3(.02, -.06, .02), rear + vec3(0, 0, .06), .014, .012));
  t = min(t, rod(q, low + vec3(.01, -.03, .045), vec3(.80, .62, .06), .020, .015));
  t = min(t, rod(q, vec3(.80, .62, .06), vec3(.86, .5, .06), .015, .012));
  d = add(d, t, 3.);
  d = add(d, rod(p, seat, seat + vec3(-.05, .15, 0), .018, .018), 82.);
  vec3 s = p - seat - vec3(-.04, .18, 0);
  d = add(d, blend(egg(s - vec3(-.06, 0, 0), vec3(.13, .04, .1)), egg(s - vec3(.1, 0, 0), vec3(.14, .03, .035)), .05), 4.);
  d = add(d, rod(p, head, head + vec3(-.03, .15, 0), .02, .02), 82.);
  vec3 h = q - head - vec3(-.02, .16, 0);
  d = add(d, rod(h, vec3(0), vec3(.08, .01, .2), .016, .016), 82.);
  d = add(d, rod(h, vec3(.08, .01, .2), vec3(-.12, .0, .32), .017, .017), 82.);
  d = add(d, rod(h, vec3(-.03, .01, .27), vec3(-.18, .0, .34), .024, .024), 4.);
  d = add(d, cyl((p - pedal - vec3(0, 0, .07)).xzy, .105, .006, .002), 82.);
  d = add(d, rod(p, pedal + vec3(0, 0, .09), pedal + vec3(.12, -.13, .09), .014, .012), 82.);
  d = add(d, rod(p, pedal + vec3(0, 0, -.09), pedal + vec3(-.12, .13, -.09), .014, .012), 82.);
  d = add(d, box(p - pedal - vec3(.12, -.14, .15), vec3(.05, .012, .045), .008), 4.);
  d = add(d, box(p - pedal - vec3(-.12, .14, -.15), vec3(.05, .012, .045), .008), 4.);
  d = add(d, abs(max(ring(f.xzy, .52, .016), -f.y + .1 + .9 * f.x)) - .002, 3.);
  d = add(d, abs(max(ring(b.xzy, .52, .016), -b.y - .15 + .3 * b.x)) - .002, 3.);
  d = add(d, abs(box(q - vec3(-.86, 1.06, .1), vec3(.24, .008, .012), .004)), 82.);
  d = add(d, rod(q, vec3(-.9, 1.05, .1), rear + vec3(0, 0, .07), .008, .008), 82.);
  d = add(d, box(p - vec3(1.15, .9, .0) - vec3(-.30, .16, 0), vec3(.17, .13, .2), .03) + .004 * sin(60. * p.y) * sin(60. * (p.x + p.z)), 5.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  if (m < 2.5) c = vec3(.03), g = .1;
  else if (m < 3.5) c = vec3(.05, .30, .30), g = .75;
  else if (m < 4.5) c = vec3(.36, .19, .09), g = .3;
  else if (m < 5.5) c = vec3(.62, .44, .22) * (.7 + .5 * noise(p * 40.)), g = 0.;
  else c = vec3(.78, .79, .80), g = .7;
}
//# tent
#define OUTSIDE
#define HILLS(p) (-.05 * noise(p * 3.) - 10. * smoothstep(7., 17., -p.z) * fbm(vec3(p.x * .13 + 9., 2., p.z * .14)))
#define EYE vec3(-2.0, 1.3, 4.9)
#define TARGET vec3(0, .62, 0)
#define GROUND vec3(.34, .42, .17)
#define LIGHT vec3(-.75, .6, .5)
#define SUN vec3(2.9, 2.35, 1.75)
#define FILL vec3(.50, .60, .80)
float wedge(vec3 p, float s) {
  float sag = .05 * cos(p.z * 1.7) ;
  return max(dot(vec2(abs(p.x), p.y - 1.25 * s + sag), normalize(vec2(1.25, 1.0))), abs(p.z) - 1.2 * s - .12 * (1. - p.y)) * .85;
}
vec2 things(vec3 p) {
  vec3 q = p;
  q.xz = turn(q.xz, -.5);
  float shell = max(max(wedge(q, 1.), -wedge(q - vec3(0, -.03, .0), .98)), -(max(wedge(q - vec3(0, -.12, 0), .8), .9 - q.z)));
  vec2 d = vec2(max(shell, -p.y - .1), 2.);
  vec3 flap = q - vec3(.62, .45, 1.34);
  flap.xy = turn(flap.xy, -.68);
  d = add(d, box(flap, vec3(.045, .52, .03), .03), 3.);
  flap = q - vec3(-.62, .45, 1.34);
  flap.xy = turn(flap.xy, .68);
  d = add(d, box(flap, vec3(.045, .52, .03), .03), 3.);
  vec3 s = vec3(abs(q.x), q.y, q.z);
  d = add(d, rod(s, vec3(0, 1.2, 1.2), vec3(.9, 0, 2.1), .007, .007), 4.);
  d = add(d, rod(s, vec3(.55, .5, 0), vec3(1.6, 0, .1), .007, .007), 4.);
  d = add(d, rod(q, vec3(0, 0, 1.15), vec3(0, 1.26, 1.15), .018, .018), 82.);
  vec3 b = q - vec3(.1, .12, .55);
  d = add(d, box(b, vec3(.3, .1, .7), .1), 5.);
  vec3 l = p - vec3(1.35, .12, 1.35);
  d = add(d, max(cyl(l - vec3(0, .08, 0), .15, .15, .02), -cyl(l - vec3(0, .2, 0), .135, .14, .0)), 82.);
  vec3 w = p - vec3(-1.55, .15, 1.1);
  float pack = blend(box(w - vec3(0, .25, 0), vec3(.25, .36, .17), .12), box(w - vec3(0, .2, .2), vec3(.17, .17, .08), .06), .05);
  d = add(d, blend(pack, egg(w - vec3(0, .62, 0), vec3(.26, .12, .18)), .04), 6.);
  d = add(d, rod(w, vec3(-.27, .78, 0), vec3(.27, .78, 0), .085, .085), 7.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .1;
  if (m < 2.5) c = vec3(.88, .52, .08) * (.9 + .16 * fbm(p * 5.));
  else if (m < 3.5) c = vec3(.66, .34, .05);
  else if (m < 4.5) c = vec3(.9, .85, .7);
  else if (m < 5.5) c = vec3(.15, .24, .45);
  else if (m < 6.5) c = vec3(.50, .10, .08) * (.85 + .2 * noise(p * 30.));
  else if (m < 7.5) c = vec3(.18, .28, .30);
  else c = vec3(.7, .71, .73), g = .6;
}
//# cabin
#define OUTSIDE
#define HILLS(p) (-.10 * noise(p * 1.5) - 11. * smoothstep(9., 20., -p.z) * fbm(vec3(p.x * .12 + 5., 3., p.z * .12)))
#define EYE vec3(-3.4, 1.9, 7.6)
#define TARGET vec3(.1, 1.35, 0)
#define GROUND vec3(.36, .42, .17)
#define LIGHT vec3(-.65, .62, .75)
#define SUN vec3(2.9, 2.4, 1.8)
#define FILL vec3(.52, .62, .82)
#define ZOOM 2.6
float frame(vec3 p, float s, float deep) {
  return max(dot(vec2(abs(p.x), p.y - 3.0 * s), normalize(vec2(3.0, 1.75))), abs(p.z) - deep);
}
vec2 things(vec3 p) {
  vec3 q = p - vec3(.1, .25, 0);
  q.xz = turn(q.xz, -.18);
  vec2 d = vec2(max(frame(q, 1., 2.0), -frame(q, .945, 3.)), 2.);
  d = add(d, max(frame(q, .95, 1.55), -q.y), 3.);
  d = add(d, box(q - vec3(0, -.02, .75), vec3(1.75, .06, 2.1), .01), 4.);
  vec3 w = q - vec3(0, .78, 1.57);
  d = add(d, box(w - vec3(-.36, .04, 0), vec3(.33, .76, .02), .0), 5.);
  d = add(d, box(w - vec3(.40, .0, 0), vec3(.30, .72, .03), .01), 6.);
  d = add(d, max(frame(q - vec3(0, .25, 1.57), .68, .02), 1.82 - q.y), 5.);
  d = add(d, max(abs(frame(q - vec3(0, .25, 1.57), .70, .05)) - .03, 1.76 - q.y), 4.);
  d = add(d, box(q - vec3(0, 1.72, 1.58), vec3(.82, .05, .05), .01), 4.);
  vec3 chimney = q - vec3(.75, 2.4, -.6);
  d = add(d, cyl(chimney, .09, .75, .01), 7.);
  vec3 r = vec3(abs(q.x) - 1.66, q.y - .3, q.z - 1.9);
  d = add(d, min(box(r - vec3(0, .24, 0), vec3(.04, .03, .9), .01), box(vec3(r.x, r.y, mod(r.z + .15, .3) - .15), vec3(.025, .26, .025), .0) + step(.9, abs(r.z)) * .3), 4.);
  for (int i = 0; i < 7; i++) {
    float k = float(i);
    vec3 t = p - vec3(-5.6 + 1.9 * k + .8 * hash(vec3(k, 1, 1)), .2, -3.6 - 1.6 * hash(vec3(k, 2, 2)));
    float h = 2.6 + 1.5 * hash(vec3(k, 3, 3)), y = clamp(t.y / h, 0., 1.);
    float tree = length(t.xz) - (1. - y) * .95 * (.75 + .25 * fract(y * 6.)) + .16 * fbm(t * 6.);
    d = add(d, max(tree, max(.3 - t.y, t.y - h)) * .45, 8.);
  }
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .1;
  if (m < 2.5) c = vec3(.20, .23, .24) * (.8 + .3 * step(.12, fract(p.y * 4.)));
  else if (m < 3.5) c = wood(p.yxz * 1.2 + floor(p.x * 5.) * 7., vec3(.62, .40, .21), vec3(.40, .23, .11)) * (.6 + .4 * step(.08, fract(p.x * 5.)));
  else if (m < 4.5) c = wood(p * 1.5, vec3(.58, .42, .27), vec3(.38, .26, .15));
  else if (m < 5.5) c = mix(vec3(.95, .65, .28), vec3(.35, .28, .2), smoothstep(.3, 2.6, p.y + .3 * noise(p * 4.))), g = .9;
  else if (m < 6.5) c = vec3(.50, .12, .08), g = .3;
  else if (m < 7.5) c = vec3(.12), g = .4;
  else c = vec3(.09, .19, .09) * (.6 + .9 * fbm(p * 5.)), g = 0.;
}
//# van
#define OUTSIDE
#define HILLS(p) (-.02 * noise(p * 2.) - 8. * smoothstep(9., 19., -p.z) * fbm(vec3(p.x * .13 + 2., 8., p.z * .13)))
#define EYE vec3(-3.1, 1.5, 6.0)
#define TARGET vec3(.05, .85, 0)
#define GROUND vec3(.50, .47, .30)
#define LIGHT vec3(-.7, .75, .7)
#define SUN vec3(2.7, 2.4, 1.95)
#define FILL vec3(.52, .62, .82)
vec3 van(vec3 p) { p.xz = turn(p.xz, .15); return p; }
vec2 things(vec3 p) {
  vec3 q = van(p);
  float slope = max(0., -q.x - 1.15) * .55 * smoothstep(.7, 1.5, q.y);
  float body = box(q - vec3(0, .98, 0), vec3(1.72 - slope, .68, .70), .2);
  float low = box(q - vec3(0, .62, 0), vec3(1.74, .30, .72), .14);
  body = blend(body, low, .06);
  vec3 w = vec3(abs(q.x + .02) - 1.08, q.y - .33, abs(q.z) - .66);
  body = max(body, -cyl(w.xzy, .40, .2, .02));
  vec2 d = vec2(body, 2.);
  d = add(d, cyl(w.xzy, .32, .09, .04), 3.);
  d = add(d, cyl((w - vec3(0, 0, .06)).xzy, .18, .05, .02), 82.);
  vec3 s = vec3(q.x, q.y - 1.2, abs(q.z) - .685);
  float x = clamp(floor((q.x + .25) / .92 + .5), -1., 1.);
  s.x -= .92 * x - .25;
  d = add(d, box(s, vec3(.39, .235, .03), .06), 4.);
  vec3 front = q - vec3(-1.62 + .34 * (q.y - 1.2) + .1, 1.22, 0);
  d = add(d, box(front, vec3(.06, .25, .56), .06) * .8, 4.);
  d = add(d, cyl((vec3(q.x, q.y, abs(q.z)) - vec3(-1.72, .74, .48)).yxz, .12, .04, .02), 5.);
  d = add(d, box(q - vec3(-1.74, .40, 0), vec3(.07, .06, .72), .05), 82.);
  d = add(d, box(q - vec3(1.74, .40, 0), vec3(.07, .06, .72), .05), 82.);
  d = add(d, box(q - vec3(.25, 1.78, 0), vec3(.8, .03, .5), .02), 6.);
  d = add(d, box(vec3(q.x - .25, q.y - 1.71, abs(q.z) - .45), vec3(.85, .06, .03), .02), 82.);
  d = add(d, egg(q - vec3(.25, 1.86, .1), vec3(1.05, .05, .25)), 7.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  vec3 q = van(p);
  g = .65;
  if (m < 2.5) {
    c = q.y > .93 ? vec3(.88, .85, .76) : vec3(.12, .40, .42);
    if (abs(q.y - .93) < .022) c = vec3(.75, .75, .75);
    float door = min(abs(q.x + .22), abs(q.x + 1.12));
    if (door < .008 && abs(q.z) > .5 && q.y > .42 && q.y < 1.5) c *= .35;
  } else if (m < 3.5) c = vec3(.03), g = .1;
  else if (m < 4.5) c = vec3(.05, .07, .08), g = .95;
  else if (m < 5.5) c = vec3(.95, .92, .8), g = .9;
  else if (m < 6.5) c = vec3(.55, .38, .2);
  else if (m < 7.5) c = mod(q.z * 4., 2.) < .5 ? vec3(.85, .40, .15) : vec3(.92, .88, .76);
  else c = vec3(.8, .8, .82), g = .8;
}
//# guitar
#define ZOOM 2.6
#define BACK .55
#define EYE vec3(.9, 1.0, 4.3)
#define TARGET vec3(.0, .88, 0)
#define WALL vec3(.55, .60, .56)
#define WINDOW vec2(.5, 2.6)
vec3 held(vec3 p) { p -= vec3(0, .04, .1); p.yz = turn(p.yz, .2); p.xy = turn(p.xy, .1); return p; }
float outline(vec2 p) {
  float d = blend(length(p - vec2(0, .36)) - .36, length((p - vec2(0, .88)) * vec2(1., 1.05)) - .265, .22);
  return d;
}
vec2 things(vec3 p) {
  vec3 q = held(p);
  float o = outline(q.xy);
  vec2 w = vec2(o, abs(q.z) - .10);
  float body = min(max(w.x + .015, w.y + .015), 0.) + length(max(w + .015, 0.)) - .015;
  float hole = length(q.xy - vec2(0, .74)) - .105;
  body = max(body, -max(hole, .02 - q.z));
  vec2 d = vec2(body * .85, 2.);
  d = add(d, box(q - vec3(0, 1.38, .105), vec3(.034, .52, .02), .012), 3.);
  d = add(d, box(q - vec3(0, 1.24, .125), vec3(.034, .42, .008), .004), 4.);
  vec3 h = q - vec3(0, 2.0, .09);
  h.yz = turn(h.yz, .2);
  d = add(d, box(h, vec3(.055 + .02 * h.y, .14, .014), .01), 3.);
  for (int i = 0; i < 3; i++) d = add(d, rod(vec3(abs(h.x), h.yz), vec3(.05, -.08 + .08 * float(i), 0), vec3(.1, -.08 + .08 * float(i), 0), .016, .02), 82.);
  d = add(d, box(q - vec3(0, .36, .108), vec3(.13, .022, .012), .008), 4.);
  float s = clamp(floor(q.x / .0095 + .5 + .5), -2., 3.);
  d = add(d, max(length(vec2(q.x - (s - .5) * .0095, q.z - .142)) - .0018, abs(q.y - 1.13) - .77), 82.);
  vec3 t = p - vec3(0, .0, .25);
  d = add(d, rod(vec3(abs(t.x), t.yz), vec3(.0, .55, -.05), vec3(.38, 0, .25), .016, .016), 5.);
  d = add(d, rod(t, vec3(0, .55, -.05), vec3(0, 0, -.42), .016, .016), 5.);
  d = add(d, rod(vec3(abs(t.x), t.yz), vec3(.2, .26, .1), vec3(.2, .24, .3), .016, .02), 5.);
  vec3 a = p - vec3(-.95, .3, -.1);
  d = add(d, box(a, vec3(.32, .30, .2), .03), 6.);
  d = add(d, box(a - vec3(0, -.04, .2), vec3(.28, .2, .008), .005), 7.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  vec3 q = held(p);
  g = .5;
  if (m < 2.5) {
    float o = outline(q.xy), r = length(q.xy - vec2(0, .74));
    c = q.z > .085 ? wood(q.yxz * vec3(1., 2.5, 1.), vec3(.80, .52, .24), vec3(.58, .33, .13)) : wood(q.yxz * 1.5, vec3(.40, .19, .09), vec3(.2, .08, .04));
    if (q.z > .085 && abs(o + .012) < .010) c = vec3(.9, .84, .7);
    if (q.z > .085 && abs(r - .13) < .012) c = mod(atan(q.x, q.y - .74) * 14., 2.) < 1. ? vec3(.1) : vec3(.8, .7, .5);
    if (r < .104 && q.z < .085) c = vec3(.07, .04, .03);
  } else if (m < 3.5) c = wood(q.yxz * 2., vec3(.42, .22, .11), vec3(.25, .11, .06));
  else if (m < 4.5) { c = vec3(.07, .05, .045); if (q.y > .85 && abs(fract(pow(max(q.y - .3, 0.), 1.6) * 9.) - .5) < .04) c = vec3(.75, .72, .6); }
  else if (m < 5.5) c = vec3(.06), g = .5;
  else if (m < 6.5) c = vec3(.10, .09, .08) * (.8 + .4 * noise(p * 70.)), g = .05;
  else if (m < 7.5) c = vec3(.45, .38, .28) * (.7 + .4 * step(.5, fract(p.x * 40.)) * step(.5, fract(p.y * 40.))), g = 0.;
  else c = vec3(.8, .78, .72), g = .7;
}
//# piano
#define BACK .75
#define EYE vec3(-1.5, 1.5, 4.4)
#define TARGET vec3(0, .66, 0)
#define WALL vec3(.74, .70, .62)
#define WINDOW vec2(.5, 2.4)
vec2 things(vec3 p) {
  vec2 d = vec2(box(p - vec3(0, .62, -.45), vec3(.95, .62, .2), .015), 2.);
  d = add(d, box(p - vec3(0, 1.26, -.43), vec3(1.0, .025, .24), .012), 2.);
  d = add(d, box(p - vec3(0, .63, -.08), vec3(.95, .05, .22), .012), 2.);
  d = add(d, box(vec3(abs(p.x) - .93, p.y - .70, p.z + .1), vec3(.035, .10, .24), .02), 2.);
  d = add(d, box(vec3(abs(p.x) - .88, p.y - .30, p.z - .06), vec3(.045, .30, .05), .015), 2.);
  d = add(d, box(p - vec3(0, .05, -.2), vec3(.95, .05, .30), .012), 2.);
  d = add(d, box(p - vec3(0, .93, -.245), vec3(.62, .14, .012), .008), 2.);
  d = add(d, box(p - vec3(0, .695, .0), vec3(.86, .016, .11), .004), 3.);
  float k = mod(p.x / .05 + .5, 7.), slot = floor(k);
  if (slot != 2. && slot != 6.) d = add(d, max(box(vec3(p.x - .05 * (floor(p.x / .05 + .5)) - .025, p.y - .72, p.z + .04), vec3(.013, .014, .07), .004), abs(p.x) - .83), 4.);
  vec3 s = p - vec3(.02, .80, -.22);
  s.yz = turn(s.yz, .2);
  d = add(d, box(vec3(abs(s.x) - .125, s.y - .14, s.z - .02), vec3(.12, .15, .006), .003), 5.);
  for (int i = 0; i < 2; i++) d = add(d, rod(p, vec3(-.08 + .16 * float(i), .06, .08), vec3(-.08 + .16 * float(i), .05, .2), .02, .025), 81.);
  vec3 b = p - vec3(.1, 0, .95);
  b.xz = turn(b.xz, .12);
  d = add(d, box(b - vec3(0, .47, 0), vec3(.38, .05, .2), .03), 6.);
  d = add(d, box(b - vec3(0, .40, 0), vec3(.36, .035, .18), .01), 2.);
  d = add(d, rod(vec3(abs(b.x), b.y, abs(b.z)), vec3(.31, .4, .14), vec3(.33, 0, .15), .03, .02), 2.);
  vec3 v = p - vec3(.62, 1.29, -.42);
  d = add(d, blend(egg(v - vec3(0, .1, 0), vec3(.09, .1, .09)), cyl(v - vec3(0, .22, 0), .035, .06, .01), .05), 7.);
  for (int i = 0; i < 5; i++) { float a = float(i) * 1.3; d = add(d, rod(v, vec3(0, .2, 0), vec3(.14 * cos(a), .46 + .04 * sin(a * 3.), .12 * sin(a)), .006, .006), 8.); d = add(d, length(v - vec3(.14 * cos(a), .47 + .04 * sin(a * 3.), .12 * sin(a))) - .045, 9.); }
  vec3 f = p - vec3(-.55, 1.40, -.42);
  f.yz = turn(f.yz, .15);
  d = add(d, box(f, vec3(.1, .12, .01), .005), 81.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .75;
  if (m < 2.5) c = wood(p * vec3(1., 1.5, 1.5), vec3(.30, .13, .07), vec3(.15, .06, .03));
  else if (m < 3.5) c = vec3(.90, .88, .80) * (.35 + .65 * smoothstep(.5, .44, abs(fract(p.x / .05) - .5))), g = .5;
  else if (m < 4.5) c = vec3(.02);
  else if (m < 5.5) { vec3 s = p - vec3(.02, .80, -.22); c = vec3(.92, .90, .84); if (fract(s.y * 22.) > .4 && fract(s.y * 110.) < .25 && abs(abs(s.x) - .125) < .1) c = vec3(.2); g = 0.; }
  else if (m < 6.5) c = vec3(.25, .07, .06), g = .25;
  else if (m < 7.5) c = vec3(.25, .38, .48);
  else if (m < 8.5) c = vec3(.2, .35, .12), g = 0.;
  else if (m < 9.5) c = vec3(.88, .62, .58), g = 0.;
  else c = vec3(.9, .7, .36), g = .8;
}
//# camera
#define STUDIO
#define BACK 2.0
#define EYE vec3(1.1, 1.15, 3.4)
#define TARGET vec3(.02, .40, .05)
#define WALL vec3(.50, .40, .33)
#define GROUND vec3(.58, .38, .22)
vec2 things(vec3 p) {
  vec3 q = p - vec3(-.1, .36, -.1);
  q.xz = turn(q.xz, -.15);
  vec2 d = vec2(box(q - vec3(0, -.02, 0), vec3(.66, .25, .17), .1), 2.);
  d = add(d, box(q - vec3(0, .26, 0), vec3(.66, .09, .165), .06), 82.);
  d = add(d, box(q - vec3(0, -.30, 0), vec3(.66, .05, .165), .04), 82.);
  float hump = box(q - vec3(0, .36, .0), vec3(.22 - .35 * max(q.y - .34, 0.), .15, .17), .03);
  d = add(d, hump * .9, 82.);
  vec3 l = q.xzy - vec3(0, .17, -.02);
  d = add(d, cyl(l - vec3(0, .02, 0), .29, .05, .01), 82.);
  d = add(d, cyl(l - vec3(0, .15, 0), .265, .10, .012) + .004 * step(.0, sin(atan(l.x, l.z) * 60.)) * step(abs(l.y - .15), .05), 3.);
  float front = max(cyl(l - vec3(0, .30, 0), .25, .09, .012), -cyl(l - vec3(0, .38, 0), .20, .1, .0));
  d = add(d, front, 3.);
  d = add(d, egg(l - vec3(0, .24, 0), vec3(.2, .07, .2)), 4.);
  d = add(d, cyl(q - vec3(.45, .39, 0), .10, .055, .012), 82.);
  d = add(d, cyl(q - vec3(.27, .37, .03), .055, .04, .01), 82.);
  d = add(d, cyl(q - vec3(-.45, .38, 0), .095, .05, .012), 3.);
  d = add(d, box(q - vec3(0, .42, .172), vec3(.11, .04, .01), .005), 5.);
  vec3 s = p - vec3(.98, .0, .25);
  d = add(d, cyl(s - vec3(0, .24, 0), .19, .24, .015) + .004 * step(0., sin(atan(s.x, s.z) * 50.)) * step(abs(s.y - .28), .07), 3.);
  d = add(d, cyl(s - vec3(0, .10, 0), .195, .03, .01), 82.);
  d = add(d, egg(s - vec3(0, .48, 0), vec3(.15, .03, .15)), 4.);
  vec3 f = p - vec3(.5, .115, .75);
  f = vec3(turn(f.xz, .6), f.y).xzy;
  d = add(d, cyl(f.yxz, .11, .19, .01), 6.);
  d = add(d, cyl(f.yxz, .03, .235, .008), 7.);
  float strap = length(vec2(q.x + .68 + .18 * sin(q.z * 3. + 1.), q.y + .31 - .25 * exp(-8. * q.z * q.z))) - .03;
  d = add(d, max(strap, abs(q.z - .3) - .6) * .5, 8.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .4;
  if (m < 2.5) c = vec3(.045, .04, .04) * (.7 + .7 * noise(p * 60.)), g = .25;
  else if (m < 3.5) c = vec3(.03), g = .5;
  else if (m < 4.5) c = mix(vec3(.05, .03, .12), vec3(.10, .22, .25), noise(p * 5.)), g = 1.;
  else if (m < 5.5) c = vec3(.85), g = .3;
  else if (m < 6.5) c = abs(fract(p.y * 5. + p.x * 2.) - .5) < .2 ? vec3(.85, .62, .10) : vec3(.08, .28, .16), g = .5;
  else if (m < 7.5) c = vec3(.06);
  else if (m < 8.5) c = vec3(.32, .17, .08), g = .2;
  else c = vec3(.70, .70, .69), g = .6;
}
//# laptop
#define STUDIO
#define BACK 2.0
#define EYE vec3(-1.5, 1.6, 3.7)
#define TARGET vec3(.08, .40, 0)
#define WALL vec3(.70, .72, .70)
#define GROUND vec3(.66, .50, .33)
vec3 lid(vec3 p) { p -= vec3(0, .045, -.55); p.yz = turn(p.yz, .28); return p; }
vec2 things(vec3 p) {
  p.xz = turn(p.xz, -.12);
  vec2 d = vec2(box(p - vec3(0, .025, 0), vec3(.85, .024, .57), .02), 82.5);
  d = add(d, box(p - vec3(0, .048, -.12), vec3(.72, .004, .26), .003), 3.);
  vec2 cell = vec2(.096, .092), at = p.xz - vec2(0, -.12);
  vec2 id = clamp(floor(at / cell + .5), vec2(-7., -2.), vec2(7., 2.));
  vec2 k = at - id * cell;
  d = add(d, box(vec3(k.x, p.y - .053, k.y), vec3(.041, .006, .039), .006), 4.);
  d = add(d, box(p - vec3(0, .049, .34), vec3(.24, .003, .15), .002), 5.);
  vec3 l = lid(p);
  d = add(d, box(l - vec3(0, .54, 0), vec3(.85, .54, .014), .012), 82.5);
  d = add(d, box(l - vec3(0, .55, .013), vec3(.80, .49, .004), .002), 6.);
  vec3 m = p - vec3(1.22, .17, .1);
  d = add(d, max(cyl(m, .17, .17, .02), -cyl(m - vec3(0, .04, 0), .155, .17, .0)), 7.);
  d = add(d, max(ring((m - vec3(.18, .0, 0)).xzy, .10, .026), .15 - m.x), 7.);
  d = add(d, cyl(m - vec3(0, .1, 0), .155, .01, .0), 8.);
  vec3 n = p - vec3(-1.25, .03, .25);
  n.xz = turn(n.xz, .3);
  d = add(d, box(n, vec3(.27, .028, .38), .01), 9.);
  d = add(d, rod(n, vec3(-.05, .05, -.3), vec3(.14, .05, .25), .018, .014), 10.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  p.xz = turn(p.xz, -.12);
  g = .3;
  if (m < 3.5) c = vec3(.05);
  else if (m < 4.5) c = vec3(.03), g = .2;
  else if (m < 5.5) c = vec3(.55, .56, .58), g = .4;
  else if (m < 6.5) {
    vec3 l = lid(p);
    vec2 s = l.xy - vec2(0, .55);
    float ridge = .22 * fbm(vec3(s.x * 3., 1., 5.)), near = .2 * fbm(vec3(s.x * 4., 3., 9.));
    c = mix(vec3(.95, .66, .42), vec3(.25, .45, .75), smoothstep(-.2, .5, s.y));
    if (s.y < -.05 + ridge) c = vec3(.20, .33, .42);
    if (s.y < -.26 + near) c = vec3(.08, .22, .20);
    c *= 1.25;
    if (abs(s.x) > .79 || abs(s.y) > .475) c = vec3(.02);
    g = .5;
  } else if (m < 7.5) c = vec3(.88, .85, .78), g = .7;
  else if (m < 8.5) c = vec3(.12, .06, .03), g = .6;
  else if (m < 9.5) c = vec3(.10, .30, .26), g = .15;
  else if (m < 10.5) c = vec3(.80, .55, .12), g = .5;
  else c = vec3(.66, .67, .69), g = .5;
}
//# fridge
#define BACK .6
#define EYE vec3(-1.6, 1.35, 4.6)
#define TARGET vec3(.1, .88, 0)
#define WALL vec3(.86, .78, .64)
#define WINDOW vec2(.5, 2.5)
vec2 things(vec3 p) {
  vec3 q = p - vec3(-.1, .92, -.05);
  vec2 d = vec2(box(q, vec3(.46, .85, .40), .12), 2.);
  d = add(d, box(q - vec3(0, .46, .40), vec3(.45, .36, .06), .055), 2.);
  d = add(d, box(q - vec3(0, -.40, .40), vec3(.45, .45, .06), .055), 2.);
  d = add(d, rod(q, vec3(-.33, .28, .51), vec3(-.33, .5, .51), .022, .022), 82.);
  d = add(d, rod(q, vec3(-.33, -.08, .51), vec3(-.33, -.32, .51), .022, .022), 82.);
  d = add(d, box(q - vec3(.24, .62, .465), vec3(.12, .022, .008), .006), 82.);
  d = add(d, rod(vec3(abs(q.x), q.y, abs(q.z)), vec3(.35, -.84, .3), vec3(.35, -.92, .3), .04, .03), 3.);
  vec3 b = q - vec3(.05, .85, 0);
  d = add(d, box(b - vec3(-.05, .10, 0), vec3(.24, .10, .16), .03), 4.);
  vec3 t = p - vec3(1.05, 0, -.1);
  d = add(d, box(t - vec3(0, .88, 0), vec3(.5, .03, .42), .012), 5.);
  d = add(d, box(t - vec3(0, .43, -.02), vec3(.48, .43, .38), .01), 6.);
  d = add(d, box(vec3(abs(t.x) - .235, t.y - .45, t.z - .365), vec3(.215, .36, .012), .008), 6.);
  d = add(d, length(vec3(abs(t.x) - .06, t.y - .6, t.z - .4)) - .018, 82.);
  vec3 k = t - vec3(-.05, 1.02, 0);
  d = add(d, blend(egg(k, vec3(.19, .15, .19)), cyl(k - vec3(0, -.1, 0), .17, .02, .01), .05), 7.);
  d = add(d, min(rod(k, vec3(.14, .0, .02), vec3(.28, .12, .04), .04, .022), length(k - vec3(0, .17, 0)) - .03), 7.);
  d = add(d, max(ring((k - vec3(0, .12, 0)).xzy, .15, .014), -k.y + .1), 8.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .7;
  if (m < 2.5) c = vec3(.52, .74, .60);
  else if (m < 3.5) c = vec3(.1);
  else if (m < 4.5) c = vec3(.72, .52, .28) * (.75 + .3 * sin(p.y * 130.) * sin(p.x * 90. + p.z * 90.)), g = 0.;
  else if (m < 5.5) c = wood(p * 2., vec3(.72, .52, .32), vec3(.52, .34, .18)), g = .4;
  else if (m < 6.5) c = vec3(.86, .84, .78), g = .4;
  else if (m < 7.5) c = vec3(.78, .18, .10);
  else if (m < 8.5) c = vec3(.05);
  else c = vec3(.85, .85, .86), g = .8;
}
//# painting
#define BACK .5
#define EYE vec3(.75, 1.25, 3.7)
#define TARGET vec3(0, 1.02, -.4)
#define WALL vec3(.74, .72, .68)
#define WINDOW vec2(.2, 2.8)
#define LIGHT vec3(.9, .7, .8)
vec2 things(vec3 p) {
  vec3 q = p - vec3(0, 1.25, -.45);
  float r = max(abs(q.x) - .82, abs(q.y) - .56);
  float frame = max(box(q, vec3(.94, .68, .055), .012), -box(q - vec3(0, 0, .06), vec3(.82, .56, .05), .0));
  frame = min(frame, max(abs(r - .06) - .025, abs(q.z - .055) - .012));
  vec2 d = vec2(frame, 2.);
  d = add(d, box(q - vec3(0, 0, .0), vec3(.82, .56, .02 + .003 * noise(q * 45.)), .0) * .9, 3.);
  vec3 c = p - vec3(0, 0, -.2);
  d = add(d, box(c - vec3(0, .36, 0), vec3(1.2, .03, .24), .012), 4.);
  d = add(d, rod(vec3(abs(c.x), c.y, abs(c.z)), vec3(1.1, .34, .18), vec3(1.12, 0, .2), .03, .02), 4.);
  vec3 v = c - vec3(-.72, .39, .02);
  d = add(d, blend(egg(v - vec3(0, .13, 0), vec3(.12, .13, .12)), cyl(v - vec3(0, .27, 0), .045, .05, .01), .06), 5.);
  vec3 b = c - vec3(.62, .42, .02);
  d = add(d, box(b, vec3(.2, .03, .14), .008), 6.);
  b.xz = turn(b.xz, .3);
  d = add(d, box(b - vec3(0, .055, 0), vec3(.18, .024, .13), .008), 7.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .35;
  if (m < 2.5) c = wood(p * 2., vec3(.72, .52, .22), vec3(.45, .30, .10)), g = .6;
  else if (m < 3.5) {
    vec2 s = (p.xy - vec2(0, 1.25)) / .56;
    vec2 w = s + .05 * vec2(fbm(vec3(s * 9., 1.)), fbm(vec3(s * 9., 5.)));
    c = mix(vec3(.90, .74, .52), vec3(.34, .52, .72), smoothstep(-.1, .9, w.y + .25 * fbm(vec3(w * 3., 2.))));
    if (w.y < .32 + .5 * fbm(vec3(w.x * 1.4, 2., 1.)) - .1) c = mix(vec3(.38, .48, .56), vec3(.50, .55, .55), fbm(vec3(w * 8., 1.)));
    if (w.y < .02 + .55 * fbm(vec3(w.x * 1.9, 7., 1.)) - .1) c = mix(vec3(.14, .30, .26), vec3(.28, .42, .26), fbm(vec3(w * 11., 3.)));
    if (w.y < -.28 + .4 * fbm(vec3(w.x * 2.6, 9., 4.)) - .1) c = mix(vec3(.07, .17, .09), vec3(.24, .36, .12), fbm(vec3(w * 13., 7.)));
    float river = abs(w.x - .25 - .4 * sin(w.y * 3.)) - .05 + .16 * (w.y + .3);
    if (w.y < -.25 && river < .0) c = mix(vec3(.62, .72, .76), vec3(.86, .80, .66), fbm(vec3(w * 6., 2.)));
    c *= .75 + .5 * noise(vec3(w * vec2(26., 60.), 1.));
    g = .25;
  } else if (m < 4.5) c = wood(p * 2., vec3(.46, .26, .13), vec3(.27, .13, .06));
  else if (m < 5.5) c = vec3(.16, .34, .42), g = .8;
  else if (m < 6.5) c = vec3(.50, .16, .12), g = .1;
  else c = vec3(.80, .74, .60), g = .1;
}
//# surfboard
#define ZOOM 3.0
#define OUTSIDE
#define HILLS(p) (-.05 * noise(p * vec3(2., 1., 2.)) + .6 * smoothstep(1.2, 4., -p.z))
#define EYE vec3(-1.3, 1.15, 5.0)
#define TARGET vec3(.15, 1.0, 0)
#define GROUND vec3(.82, .72, .54)
#define LIGHT vec3(-.6, .65, .6)
#define SUN vec3(2.7, 2.4, 1.95)
#define FILL vec3(.52, .64, .85)
vec3 board(vec3 p) { p -= vec3(.15, 1.02, .1); p.xy = turn(p.xy, -.12); p.yz = turn(p.yz, .12); return p; }
vec2 things(vec3 p) {
  vec3 q = board(p);
  float y = q.y / 1.15, w = .31 * pow(max(1. - y * y * (.75 + .25 * y), 0.), .62);
  float e = (length(vec2(q.x / max(w, .03), (q.z - .1 * y * y) / .045)) - 1.) * .04;
  vec2 d = vec2(max(e, abs(q.y) - 1.14) * .7, 2.);
  d = add(d, p.y + .07 - .035 * sin(4. * p.z + 3. * noise(vec3(p.xz * .8, 1.))) + 3. * smoothstep(-2.2, -1.6, p.z + .3 * sin(p.x * .8)), 6.);
  vec3 t = p - vec3(-1.0, .02, .3);
  d = add(d, box(t - vec3(0, .02 + .01 * sin(9. * t.x), 0), vec3(.5, .02, .75), .015), 3.);
  d = add(d, max(abs(egg(t - vec3(.1, .15, -.3), vec3(.20, .17, .17))) - .004, .0), 4.);
  for (int i = 0; i < 9; i++) {
    float k = float(i), a = k * .7;
    vec3 g = p - vec3(1.9 + .5 * hash(vec3(k, 1, 1)), 0, -.8 + .5 * hash(vec3(k, 2, 1)));
    d = add(d, rod(g, vec3(0), vec3(.35 * cos(a), .65 + .25 * hash(vec3(k, 4, 4)), .2 * sin(a)), .014, .004), 5.);
  }
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  vec3 q = board(p);
  g = .65;
  if (m < 2.5) {
    c = vec3(.92, .90, .83);
    if (q.y > .45 && q.y < .62) c = vec3(.80, .28, .14);
    if (q.y > .64 && q.y < .70) c = vec3(.10, .36, .42);
    if (q.y < -.62 && q.y > -.95) c = vec3(.10, .36, .42);
    if (abs(q.x) < .007) c = vec3(.45, .30, .18);
  } else if (m < 3.5) c = (mod(p.z * 7., 2.) < 1. ? vec3(.85, .80, .70) : vec3(.18, .40, .50)) * (.8 + .3 * noise(p * 50.)), g = 0.;
  else if (m < 4.5) c = vec3(.70, .50, .26) * (.7 + .4 * noise(p * 40.)), g = 0.;
  else if (m < 5.5) c = vec3(.45, .48, .20), g = 0.;
  else { c = mix(vec3(.25, .55, .56), vec3(.05, .25, .38), smoothstep(-2.2, -9., p.z)); if (fbm(vec3(p.x * .8, 0, p.z * 3.)) > .62 + .02 * p.z * .0 && p.z > -6.) c = vec3(.9); g = .8; }
}
//# plant
#define ZOOM 3.0
#define STUDIO
#define BACK 1.5
#define EYE vec3(.5, 1.5, 4.4)
#define TARGET vec3(0, .85, 0)
#define WALL vec3(.80, .76, .68)
#define GROUND vec3(.60, .42, .26)
float leaf(vec3 p, float a, float lean, float size) {
  p.xz = turn(p.xz, a);
  float bend = lean * p.y * p.y;
  p.x -= bend;
  float y = p.y / size, w = .17 * size * pow(max(y * (1.06 - y) * 3.6, 0.), .75) * smoothstep(.25, .5, y) + .012;
  float d = length(vec2(p.z / w, (p.x + .25 * abs(p.z)) / .016)) - 1.;
  return max(d * .016, max(-p.y, p.y - size)) * .55;
}
vec2 things(vec3 p) {
  float r = length(p.xz), h = p.y;
  float pot = max(abs(r - (.28 + .16 * h)) - .02, abs(h - .30) - .30) * .9;
  pot = min(pot, max(abs(r - .40) - .028, abs(h - .57) - .06));
  vec2 d = vec2(pot - .004, 2.);
  d = add(d, cyl(p - vec3(0, .012, 0), .36, .022, .01), 2.);
  d = add(d, max(r - .36, abs(h - .52 - .02 * noise(p * 12.)) - .03), 3.);
  vec3 q = p - vec3(0, .52, 0);
  for (int i = 0; i < 13; i++) {
    float k = float(i);
    d = add(d, leaf(q, k * 2.4, .34 + .30 * hash(vec3(k, 1, 2)) - .012 * k, .78 + .3 * hash(vec3(k, 5, 2))), 4. + .01 * k);
  }
  for (int i = 0; i < 3; i++) {
    float a = 1.0 + float(i) * 2.2;
    vec3 tip = vec3(.2 * cos(a), 1.02 + .14 * float(i), .2 * sin(a)), f = q - tip;
    d = add(d, rod(q, vec3(0), tip, .013, .010), 5.);
    d = add(d, rod(f, vec3(0, -.02, 0), vec3(.02, .13, 0), .026, .02), 6.);
    f.xz = turn(f.xz, a);
    d = add(d, max(egg(f - vec3(-.05, .10, 0), vec3(.055, .19, .12)), -egg(f - vec3(.02, .12, 0), vec3(.085, .2, .13))), 7.);
  }
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .1;
  if (m < 2.5) c = vec3(.70, .34, .20) * (.82 + .3 * fbm(p * 7.)), g = .05;
  else if (m < 3.5) c = vec3(.10, .06, .04) * (.6 + .8 * noise(p * 40.)), g = 0.;
  else if (m < 4.9) c = mix(vec3(.05, .20, .06), vec3(.16, .38, .12), hash(vec3(m * 91., 1, 1))) * (.8 + .35 * smoothstep(.2, .9, p.y - .5)), g = .45;
  else if (m < 5.5) c = vec3(.25, .42, .16);
  else if (m < 6.5) c = vec3(.86, .80, .50);
  else c = vec3(.93, .93, .88);
}
//# honey
#define STUDIO
#define BACK 1.8
#define EYE vec3(.3, 1.15, 3.7)
#define TARGET vec3(.06, .46, 0)
#define WALL vec3(.55, .53, .46)
#define GROUND vec3(.56, .38, .22)
vec2 things(vec3 p) {
  vec3 j = p - vec3(-.3, 0, 0);
  float jar = blend(cyl(j - vec3(0, .40, 0), .36, .40, .07), cyl(j - vec3(0, .82, 0), .29, .05, .02), .06);
  vec2 d = vec2(jar, 2.);
  d = add(d, cyl(j - vec3(0, .93, 0), .325, .075, .02) + .003 * sin(atan(j.x, j.z) * 80.) * step(abs(j.y - .92), .05), 81.);
  vec3 s = p - vec3(.62, .22, .28);
  s.xy = turn(s.xy, 1.02);
  s = s - vec3(0, .0, 0);
  float rings = egg(s - vec3(0, -.28, 0), vec3(.12, .19, .12)) + .018 * cos(s.y * 62.);
  d = add(d, rings * .7, 3.);
  d = add(d, rod(s, vec3(0, -.3, 0), vec3(0, .75, 0), .024, .03), 3.);
  vec3 b = p - vec3(.72, .0, .30);
  d = add(d, max(abs(length((b - vec3(0, .30, 0)) * vec3(1., 1.25, 1.)) - .33) - .012, b.y - .26) * .8, 4.);
  d = add(d, cyl(b - vec3(0, .17, 0), .27, .01, .0), 5.);
  for (int i = 0; i < 5; i++) {
    float k = float(i) * 1.256 + .3;
    vec3 f = p - vec3(-1.05, .05, .55), o = f - vec3(.1 * cos(k), .0, .1 * sin(k));
    d = add(d, egg(o, vec3(.085, .025, .085)), 6.);
    f = p - vec3(.15, .05, .85); o = f - vec3(.085 * cos(k + 1.), 0., .085 * sin(k + 1.));
    d = add(d, egg(o, vec3(.07, .022, .07)), 6.);
  }
  d = add(d, min(length(p - vec3(-1.05, .07, .55)) - .055, length(p - vec3(.15, .07, .85)) - .045), 7.);
  d = add(d, rod(p, vec3(-1.02, .03, .5), vec3(-.55, .03, .15), .014, .014), 8.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .9;
  if (m < 2.5) {
    vec3 j = p - vec3(-.3, 0, 0);
    float a = atan(j.x, j.z);
    c = mix(vec3(.95, .48, .05), vec3(.62, .24, .02), smoothstep(.75, .1, p.y)) * 1.15;
    if (abs(a - .1) < .72 && p.y > .2 && p.y < .64) {
      c = vec3(.92, .88, .76);
      g = .1;
      vec2 s = vec2((a - .1) * .36, p.y - .42);
      if (max(abs(s.x) - .235, abs(s.y) - .195) > -.012) c = vec3(.45, .28, .08);
      vec2 h = abs(turn(s - vec2(0, .06), .0));
      if (max(h.x * .866 + h.y * .5, h.y) < .085) c = vec3(.88, .55, .10);
      if (s.y < -.06 && s.y > -.14 && fract(s.y * 25.) > .45 && abs(s.x) < .16 && noise(vec3(s.x * 70., floor(s.y * 25.), 1.)) > .33) c = vec3(.25, .16, .08);
    }
  } else if (m < 3.5) c = wood(p * 3., vec3(.72, .50, .28), vec3(.52, .33, .16)), g = .3;
  else if (m < 4.5) c = vec3(.88, .86, .80), g = .7;
  else if (m < 5.5) c = vec3(.90, .48, .05);
  else if (m < 6.5) c = vec3(.93, .91, .88), g = .05;
  else if (m < 7.5) c = vec3(.55, .16, .22), g = .05;
  else if (m < 8.5) c = vec3(.24, .34, .14), g = 0.;
  else c = vec3(.90, .72, .36), g = .6;
}
//# gumboots
#define BACK 1.0
#define EYE vec3(1.1, 1.25, 4.1)
#define TARGET vec3(.05, .52, 0)
#define WALL vec3(.66, .70, .66)
#define WINDOW vec2(.4, 2.2)
#define GROUND vec3(.46, .40, .34)
float boot(vec3 p) {
  float leg = max(abs(length(p.xz * vec2(1., .9)) - (.20 + .035 * smoothstep(.3, 1.1, p.y)) - .012 * cos(8. * p.y) * smoothstep(.6, .2, p.y)) - .022, abs(p.y - .62) - .48) * .85;
  float foot = blend(egg(p - vec3(0, .17, .30), vec3(.20, .17, .30)), egg(p - vec3(0, .18, .0), vec3(.20, .20, .24)), .14);
  foot = max(foot, -p.y + .05);
  return blend(leg, max(foot, -max(length(p.xz) - .17, .3 - p.y)), .09);
}
vec2 pair(vec2 d, vec3 p) {
  d = add(d, boot(p), 2.);
  vec3 s = p - vec3(0, .035, .19);
  d = add(d, max(egg(vec3(s.x, 0., s.z), vec3(.215, 1., .43)), abs(s.y) - .035) * .7, 3.);
  return add(d, ring(p - vec3(0, 1.09, 0), .235, .03), 4.);
}
vec2 things(vec3 p) {
  vec3 a = p - vec3(-.36, 0, 0), b = p - vec3(.30, 0, -.08);
  a.xz = turn(a.xz, .35);
  b.xz = turn(b.xz, -.12);
  vec2 d = pair(vec2(1e3, 2.), a);
  d = pair(d, b);
  vec3 c = p - vec3(1.15, 0, -.35);
  d = add(d, max(abs(length(c.xz) - (.22 + .08 * c.y)) - .012, abs(c.y - .30) - .30) * .9, 82.);
  d = add(d, ring(c - vec3(0, .6, 0), .268, .016), 82.);
  d = add(d, cyl(c - vec3(0, .03, 0), .22, .02, .0), 82.);
  vec3 u = p - vec3(-1.15, .0, -.55);
  u.xy = turn(u.xy, .1);
  d = add(d, rod(u, vec3(0, .3, 0), vec3(.08, 1.75, -.3), .022, .022), 5.);
  d = add(d, box(u - vec3(0, .22, .05), vec3(.15, .22, .014), .01), 82.);
  d = add(d, box(p - vec3(0, .012, .25), vec3(1.0, .012, .62), .01), 6.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .75;
  if (m < 2.5) c = vec3(.66, .05, .04);
  else if (m < 3.5) c = vec3(.10, .07, .06), g = .1;
  else if (m < 4.5) c = vec3(.50, .03, .03);
  else if (m < 5.5) c = wood(p.yxz * 2., vec3(.66, .46, .26), vec3(.44, .28, .14)), g = .2;
  else if (m < 6.5) c = vec3(.50, .40, .26) * (.6 + .6 * noise(p * 45.)), g = 0.;
  else c = vec3(.62, .64, .66) * (.85 + .2 * fbm(p * 6.)), g = .5;
}
//# jersey
#define STUDIO
#define BACK 1.8
#define EYE vec3(-.9, 1.55, 3.7)
#define TARGET vec3(0, .38, 0)
#define WALL vec3(.62, .56, .50)
#define GROUND vec3(.62, .46, .30)
float knit(vec3 p) { return .012 * abs(sin(p.x * 48.)) * (.7 + .3 * sin(p.z * 70. + p.y * 70.)) + .022 * sin(p.x * 12.) * sin(p.x * 12.); }
vec2 things(vec3 p) {
  vec2 d = vec2(1e3, 2.);
  for (int i = 0; i < 3; i++) {
    float k = float(i);
    vec3 q = p - vec3(.03 * k - .2, .145 + .27 * k, .02 * k);
    q.xz = turn(q.xz, .12 - .1 * k);
    float fold = box(q, vec3(.72 - .02 * k, .135, .5), .13);
    fold = max(fold, -(box(q - vec3(0, 0, .3), vec3(.9, .008, .3), .0)) + .0);
    d = add(d, (fold - knit(q)) * .55, 2. + .1 * k);
  }
  vec3 b = p - vec3(.95, .17, .35);
  d = add(d, (length(b) - .17 + .007 * sin(70. * (b.y + .6 * b.x)) ) * .7, 3.);
  b = p - vec3(.72, .14, .72);
  d = add(d, (length(b) - .14 + .007 * sin(75. * (b.x - .4 * b.y))) * .7, 4.);
  d = add(d, rod(p, vec3(.5, .30, .15), vec3(1.15, .06, .85), .014, .010), 5.);
  d = add(d, rod(p, vec3(.55, .07, .95), vec3(1.2, .38, .3), .010, .014), 5.);
  d = add(d, min(length(p - vec3(.5, .30, .15)) - .035, length(p - vec3(1.2, .38, .3)) - .035), 5.);
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = 0.;
  if (m < 2.05) c = vec3(.25, .32, .38);
  else if (m < 2.15) c = vec3(.82, .76, .64);
  else if (m < 2.5) c = vec3(.55, .22, .14);
  else if (m < 3.5) c = vec3(.78, .58, .22);
  else if (m < 4.5) c = vec3(.82, .76, .64);
  else c = wood(p * 4., vec3(.75, .55, .32), vec3(.55, .36, .18)), g = .3;
  c *= .85 + .25 * noise(p * 90.);
}
//# saw
#define STUDIO
#define BACK 1.8
#define EYE vec3(.9, 1.35, 3.6)
#define TARGET vec3(0, .40, 0)
#define GROUND vec3(.64, .47, .30)
#define WALL vec3(.46, .47, .47)
vec3 machine(vec3 p) { p -= vec3(.05, .16, 0); p.xz = turn(p.xz, -.28); return p; }
vec2 things(vec3 p) {
  vec2 d = vec2(box(p - vec3(-.1, .07, .05), vec3(1.35, .07, .42), .008), 2.);
  vec3 q = machine(p), b = q - vec3(.12, .28, .16);
  float a = atan(b.y, b.x) * 24. / PI / 2.;
  d = add(d, cyl(b.xzy, .40 - .025 * fract(a), .009, .002) * .7, 7.);
  d = add(d, cyl(b.xzy, .07, .025, .006), 82.);
  float guard = max(cyl(b.xzy, .46, .07, .02), -b.y + .02);
  guard = max(guard, -max(cyl((b - vec3(0, 0, .04)).xzy, .34, .05, .0), -b.y - .02));
  d = add(d, guard, 3.);
  d = add(d, box(q - vec3(.1, .012, .05), vec3(.72, .012, .34), .006), 82.);
  vec3 m = q - vec3(.10, .38, -.16);
  d = add(d, blend(cyl(m.xzy, .20, .22, .05), box(m - vec3(-.12, .05, .08), vec3(.2, .15, .16), .06), .08), 3.);
  d = add(d, cyl((m - vec3(0, 0, -.24)).xzy, .15, .03, .015), 4.);
  vec3 h = q - vec3(-.42, .62, .02);
  h.xy = turn(h.xy, .35);
  float grip = box(h, vec3(.30, .19, .055), .09);
  grip = max(grip, -box(h - vec3(-.01, -.03, 0), vec3(.19, .085, .2), .07));
  d = add(d, blend(grip, rod(q, vec3(-.2, .55, .02), vec3(.05, .5, .0), .07, .1), .08), 4.);
  d = add(d, rod(q, vec3(.42, .52, -.12), vec3(.42, .68, -.26), .045, .05), 4.);
  vec3 c = p - vec3(-.95, .0, .62);
  d = add(d, max(abs(length(vec2(length(c.xz) - .28, c.y - .05)) - .035), abs(fract(c.y * 9.) - .5) * .1 - .02) * .5, 5.);
  for (int i = 0; i < 8; i++) {
    float k = float(i);
    vec3 s = p - vec3(.75 + .5 * hash(vec3(k, 1, 1)), .02, .45 + .4 * hash(vec3(k, 2, 2)));
    s.xz = turn(s.xz, k);
    d = add(d, ring(s.xzy, .05, .008), 6.);
  }
  return d;
}
void surface(float m, vec3 p, inout vec3 c, inout float g) {
  g = .5;
  if (m < 2.5) c = wood(p * 1.4, vec3(.80, .62, .38), vec3(.62, .43, .23)), g = .1;
  else if (m < 3.5) c = vec3(.05, .42, .46), g = .55;
  else if (m < 4.5) c = vec3(.05), g = .3;
  else if (m < 5.5) c = vec3(.85, .40, .06), g = .4;
  else if (m < 6.5) c = vec3(.82, .66, .42), g = 0.;
  else if (m < 7.5) c = vec3(.66, .67, .69) * (.9 + .1 * sin(length(machine(p).xy - vec2(.12, .28)) * 200.)), g = .5;
  else c = vec3(.72, .73, .75), g = .7;
}
