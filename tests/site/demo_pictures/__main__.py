"""Draw the demo's pictures: `python -m tests.site.demo_pictures FOLDER [NAME...]`; about half a minute for each.

Each scene of scenes.glsl is a fragment shader, which Chromium runs on the processor, tile by tile.
"""

import base64
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.site.browser import chromium

_FOLDER = Path(__file__).parent
_ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
_TIMEOUT_MS = 600_000
_DRAW = """async ([fragment, width, height, quality]) => {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const gl = canvas.getContext("webgl", { preserveDrawingBuffer: true });
  const program = gl.createProgram();
  const vertex = "attribute vec2 corner; void main() { gl_Position = vec4(corner, 0, 1); }";
  for (const [type, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  gl.useProgram(program);
  gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-1, -1, 3, -1, -1, 3]), gl.STATIC_DRAW);
  const corner = gl.getAttribLocation(program, "corner");
  gl.enableVertexAttribArray(corner);
  gl.vertexAttribPointer(corner, 2, gl.FLOAT, false, 0, 0);
  gl.uniform2f(gl.getUniformLocation(program, "size"), width, height);
  gl.enable(gl.SCISSOR_TEST);
  for (let y = 0; y < height; y += 100) for (let x = 0; x < width; x += 100) {
    gl.scissor(x, y, 100, 100);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    gl.finish();
    await new Promise(resolve => setTimeout(resolve));
  }
  const small = Object.assign(document.createElement("canvas"), { width: width / 2, height: height / 2 });
  const pen = small.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(canvas, 0, 0, width / 2, height / 2);
  return [canvas, small].map(one => one.toDataURL("image/webp", quality).split(",")[1]);
}"""


def read_shaders() -> Iterator[tuple[str, str]]:
    """Yield the name and the fragment shader of each scene. Its definitions precede the renderer."""
    common, scenes = (_FOLDER.joinpath(name).read_text("utf-8") for name in ("common.glsl", "scenes.glsl"))
    _, *parts = re.split(r"^//# (\w+)$", scenes, flags=re.MULTILINE)
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        lines = text.splitlines()
        head = [line for line in lines if line.startswith("#define")]
        yield name, "\n".join([*head, common, *(line for line in lines if line not in head)])


def draw(folder: Path, shaders: Mapping[str, str]) -> None:
    """Write each picture with 800 and with 400 pixels, as WebP."""
    with chromium(*_ARGUMENTS) as browser:
        page = browser.new_page()
        page.set_default_timeout(_TIMEOUT_MS)
        for name, shader in shaders.items():
            large, small = page.evaluate(_DRAW, [shader, 800, 600, 0.7])
            folder.joinpath(f"{name}.webp").write_bytes(base64.b64decode(large))
            folder.joinpath(f"{name}-400.webp").write_bytes(base64.b64decode(small))


if __name__ == "__main__":
    chosen = {name: shader for name, shader in read_shaders() if name in sys.argv[2:] or len(sys.argv) == 2}
    draw(Path(sys.argv[1]), chosen)
