"""Pictures in a bucket of S3: SeaweedFS, which checks secrets and never overwrites what is there already."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from subprocess import run
from typing import Any
from zipfile import ZipFile

import httpx2
import obstore
import pytest
from obstore.store import S3Store

from listings.domain.errors import Problem, Unavailable
from listings.domain.pictures import build_path, list_files
from listings.service.pictures import bucket as pictures_bucket
from listings.service.pictures.bucket import PictureBucket
from listings.wiring import find_missing_pictures
from tests.harness import Harness, Reply, fetch, unused_port
from tests.mail_server import create_alice, deliver, mail_flags, read_text, run_mail_server
from tests.pictures import photo
from tests.s3_server import Bucket
from tests.service.pictures.test_pictures import DAY, add, create_accounts, create_listing, find_account_id, sweep
from tests.service.pictures.test_pictures import list_files as list_local_files
from tests.service.test_messages import write
from tests.site.market import create

PATH = "/api/v1/images"

pytestmark = pytest.mark.slow


@pytest.fixture
def harness(tmp_path: Path, bucket: Bucket) -> Iterator[Harness]:
    with Harness(tmp_path, **bucket.flags) as harness:
        create_accounts(harness)
        yield harness


def upload(harness: Harness, key: str, number: int = 1) -> Reply:
    return harness.fetch("POST", PATH, key=key, body=photo(number))


def set_time_of_objects(harness: Harness, bucket: Bucket) -> None:
    harness.clock.now = max(
        entry["last_modified"].timestamp() for page in obstore.list(bucket.open_store()) for entry in page
    )


@pytest.mark.decision("G56")
def test_an_upload_is_four_objects_that_anyone_may_read(harness: Harness, bucket: Bucket) -> None:
    picture = add(harness)
    assert bucket.list_files() == sorted(list_files(picture.name))
    assert list_local_files(harness) == []
    size = 0
    for file in list_files(picture.name):
        response = httpx2.get(f"{bucket.public_url}/{file}")
        size += len(response.content)
        assert response.headers["Content-Type"] == ("image/jpeg" if file.endswith("jpg") else "image/webp")
        assert response.headers["Cache-Control"] == "public, max-age=31536000, s-maxage=86400, immutable"
    assert size == picture.size


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.decision("G56")
def test_the_service_redirects_without_asking_s3(harness: Harness, bucket: Bucket, method: str) -> None:
    name = add(harness).name
    with bucket.server.frozen():
        for file in list_files(name):
            reply = harness.fetch(method, f"/media/{file}")
            assert (reply.status, reply.headers["location"]) == (302, f"{bucket.public_url}/{file}")
            assert reply.headers["cache-control"] == "public, max-age=300"
            assert reply.headers["cross-origin-resource-policy"] == "cross-origin"
            assert "set-cookie" not in reply.headers
        assert harness.fetch(method, f"/media/{'f' * 32}.jpg").status == 404
        harness.run(harness.services.accounts.disable("alice@example.com"))
        assert harness.fetch(method, f"/media/{name}.jpg").status == 404


def test_pages_show_pictures_from_the_public_url(harness: Harness, bucket: Bucket) -> None:
    key = harness.person("charlie").key
    url = upload(harness, key).json()["url"]
    body = {"title": "Lamp", "content": "Brass.", "price": 20, "images": [url]}
    listing = harness.fetch("POST", "/api/v1/listings", key=key, json=body).json()["id"]
    name = url.rpartition("/")[2].removesuffix(".jpg")
    harness.index_market()
    page = harness.fetch("GET", f"/listings/{listing}").body.decode()
    assert f'"image":["{bucket.public_url}/{name}.jpg"]' in page
    assert f'<meta property="og:image" content="{bucket.public_url}/{name}.jpg">' in page
    for path in ("/", f"/listings/{listing}"):
        reply = harness.fetch("GET", path)
        assert f'srcset="{bucket.public_url}/{name}-400.webp 64w"' in reply.body.decode()
        assert f'"/media/{name}' not in reply.body.decode()
        assert "http:" in reply.headers["content-security-policy"].partition("img-src")[2].partition(";")[0]


def test_mail_shows_a_picture_from_the_public_url(tmp_path: Path, bucket: Bucket) -> None:
    with run_mail_server() as mailbox, Harness(tmp_path, **bucket.flags, **mail_flags(mailbox)) as harness:
        alice = create_alice(harness, mailbox)
        url = upload(harness, alice.key).json()["url"]
        assert url.startswith("https://market.example/media/")
        write(harness, create(harness, alice, images=[url]))
        deliver(harness)
        html = read_text(mailbox.messages[-1], "html")
        assert f'<img src="{bucket.public_url}/{url.rpartition("/")[2]}"' in html


def test_a_deleted_picture_leaves_no_object(harness: Harness, bucket: Bucket) -> None:
    account_id = find_account_id(harness)
    harness.run(harness.services.pictures.delete(account_id, add(harness).name))
    assert bucket.list_files() == []
    harness.run(harness.services.pictures.remove(build_path(add(harness).name), block=True))
    assert bucket.list_files() == []
    with pytest.raises(Problem, match="operator has removed"):
        add(harness)


def test_an_erased_account_leaves_no_object(harness: Harness, bucket: Bucket) -> None:
    add(harness, 1, "alice")
    bobs = add(harness, 1, "bob")
    harness.run(harness.services.accounts.erase("alice@example.com"))
    assert bucket.list_files() == sorted(list_files(bobs.name))


def test_a_lost_object_is_stored_again(harness: Harness, bucket: Bucket) -> None:
    picture = add(harness)
    kept, *lost = list_files(picture.name)
    before = obstore.get(bucket.open_store(), kept).bytes()
    obstore.delete(bucket.open_store(), lost)
    obstore.put(bucket.open_store(), f"{'0' * 32}-400.webp", b"of no picture")
    assert harness.run(find_missing_pictures(harness.settings, 10)) == [picture.name]
    assert add(harness).name == picture.name
    assert harness.run(find_missing_pictures(harness.settings, 10)) == []
    assert obstore.get(bucket.open_store(), kept).bytes() == before


def test_missing_objects_are_found_among_others(harness: Harness, bucket: Bucket) -> None:
    names = sorted(add(harness, number).name for number in range(4))
    obstore.delete(bucket.open_store(), [f"{names[1]}.jpg", *list_files(names[3])])
    assert harness.run(find_missing_pictures(harness.settings, 10)) == [names[1], names[3]]


def test_an_object_is_never_replaced(harness: Harness, bucket: Bucket) -> None:
    files = PictureBucket(harness.settings.media_folder, "pictures", bucket.prefix, bucket.public_url)
    files.create()
    for content in (b"first", b"second"):
        for file in list_files("a" * 32):
            (files.drafts / file).write_bytes(content)
        files.publish("a" * 32, "a" * 32)
    assert {files.read(file) for file in bucket.list_files()} == {b"first"}


def test_an_archive_has_the_jpegs_that_are_there(harness: Harness, bucket: Bucket) -> None:
    lost, kept = (add(harness, number).name for number in (1, 2))
    obstore.delete(bucket.open_store(), f"{lost}.jpg")
    account_id = find_account_id(harness)

    async def read() -> bytes:
        return b"".join([piece async for piece in harness.services.pictures.read_archive(account_id)])

    with ZipFile(BytesIO(harness.run(read()))) as archive:
        assert archive.namelist() == [f"{kept}.jpg"]
        assert archive.read(f"{kept}.jpg") == httpx2.get(f"{bucket.public_url}/{kept}.jpg").content


def test_unused_pictures_and_objects_without_a_row_go(harness: Harness, bucket: Bucket) -> None:
    used, unused = add(harness, 1), add(harness, 2)
    create_listing(harness, used)
    obstore.put(bucket.open_store(), f"{'f' * 32}.jpg", b"x")
    obstore.put(bucket.open_store(), "README.txt", b"x")
    set_time_of_objects(harness, bucket)
    sweep(harness, 0.9)
    assert len(bucket.list_files()) == 4 + 4 + 2
    sweep(harness, 1.1)
    assert bucket.list_files() == sorted([*list_files(used.name), *list_files(unused.name), "README.txt"])
    sweep(harness, 98)
    assert bucket.list_files() == sorted([*list_files(used.name), "README.txt"])


def test_two_databases_do_not_share_a_prefix(harness: Harness, bucket: Bucket, tmp_path: Path) -> None:
    add(harness)
    (tmp_path / "b").mkdir()
    with Harness(tmp_path / "b", **bucket.flags) as other:
        create_accounts(other)
        with pytest.raises(Unavailable, match="belongs to another database"):
            add(other)
        other.clock.advance(10 * 365 * DAY)
        with pytest.raises(Unavailable, match="belongs to another database"):
            sweep(other)
    assert len(bucket.list_files()) == 4


@pytest.mark.parametrize("point", ["publish", "add_picture"])
def test_a_kill_leaves_nothing_that_stays(tmp_path: Path, bucket: Bucket, point: str) -> None:
    """Kill the service between two objects, or between the last one and the row."""
    (tmp_path / "upload").write_bytes(photo())
    program = f"""
import os
from pathlib import Path
import obstore
from tests.harness import Harness
from tests.service.pictures.test_pictures import create_accounts

folder, put, count = Path({str(tmp_path)!r}), obstore.put, 0

def put_two(store, name, *arguments, **options):
    global count
    put(store, name, *arguments, **options)
    count += name != "database-id"
    if count == 2:
        os.kill(os.getpid(), 9)

with Harness(folder, **{bucket.flags!r}) as harness:
    create_accounts(harness)
    if {point!r} == "add_picture":
        harness.store.add_picture = lambda *_: os.kill(os.getpid(), 9)
    else:
        obstore.put = put_two
    harness.run(harness.services.pictures.add(1, folder / "upload"))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(bucket.list_files()) == (4 if point == "add_picture" else 2)
    with Harness(tmp_path, **bucket.flags) as harness:
        assert harness.run(harness.store.page_picture_names("", 10)) == []
        set_time_of_objects(harness, bucket)
        sweep(harness, 1.5)
        assert (bucket.list_files(), list_local_files(harness)) == ([], [])


def assert_unavailable(reply: Reply) -> None:
    assert (reply.status, reply.headers["x-error-code"], reply.headers["retry-after"]) == (503, "unavailable", "10")
    assert "127.0.0.1" not in reply.body.decode()


class NoBucket(BaseHTTPRequestHandler):
    """Responds to every request like Amazon S3 if the bucket does not exist."""

    def do_GET(self) -> None:
        self.send_error(404)

    do_PUT = do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def run_server_without_bucket() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), NoBucket) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("fault", ["down", "no bucket", "wrong secret"])
def test_without_s3_nothing_is_stored_or_deleted(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    with Harness(tmp_path, **bucket.flags) as harness:
        create_accounts(harness)
        account_id, key, picture = find_account_id(harness), harness.person("bob").key, add(harness)
    with ExitStack() as stack:
        patch = stack.enter_context(monkeypatch.context())
        if fault == "wrong secret":
            patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        else:
            port = stack.enter_context(unused_port() if fault == "down" else run_server_without_bucket())
            patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        with Harness(tmp_path, **bucket.flags) as harness:
            assert_unavailable(upload(harness, key))
            pictures = harness.services.pictures
            for work in (
                pictures.delete(account_id, picture.name),
                pictures.remove(picture.name, block=False),
                harness.services.accounts.erase("alice@example.com"),
                pictures.sweep(),
            ):
                with pytest.raises(Unavailable, match="S3 does not respond as expected"):
                    harness.run(work)
            assert harness.run(harness.store.page_picture_names("", 10)) == [picture.name]
            assert list_local_files(harness) == []
    assert bucket.list_files() == sorted(list_files(picture.name))


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests to S3 end after one second, not five."""
    monkeypatch.setitem(pictures_bucket._CLIENT, "timeout", "1s")  # noqa: SLF001 - there is no setting


@pytest.mark.usefixtures("one_second")
def test_a_slow_s3_delays_nothing_but_uploads(
    harness: Harness, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Freeze S3 after the second of four objects."""
    key, put, frozen, names = harness.person("bob").key, obstore.put, threading.Event(), list[str]()

    def put_two(store: S3Store, name: str, content: Any, **options: Any) -> None:
        names.append(name)
        if len(names) == 3:
            os.kill(bucket.server.pid, signal.SIGSTOP)
            frozen.set()
        put(store, name, content, **options)

    async def use() -> None:
        task = asyncio.create_task(fetch(harness.application, "POST", PATH, [(b"x-api-key", key.encode())], [photo()]))
        await asyncio.to_thread(frozen.wait)
        others = [asyncio.create_task(harness.services.pictures.require_files()) for _ in range(20)]
        await asyncio.sleep(0)
        for path, status in ((PATH, 200), ("/api/v1/listings", 200), (f"/media/{picture.name}.jpg", 302)):
            reply = await fetch(harness.application, "GET", path, [(b"x-api-key", key.encode())], [b""])
            assert reply.status == status
        assert not task.done()
        for other in others:
            other.cancel()
        assert_unavailable(await task)

    picture = add(harness)  # the bucket then belongs to the database
    monkeypatch.setattr(obstore, "put", put_two)
    try:
        harness.run(use())
    finally:
        os.kill(bucket.server.pid, signal.SIGCONT)
    assert list_local_files(harness) == []
    assert len(harness.run(harness.store.page_picture_names("", 10))) == 1
    set_time_of_objects(harness, bucket)
    sweep(harness, 1.5)
    assert len(bucket.list_files()) == 4


def test_an_object_that_s3_rejects_leaves_nothing(
    harness: Harness, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = obstore.put

    def put_without_webp(store: S3Store, name: str, content: Any, **options: Any) -> None:
        put(store, "x" * 2_000 if name.endswith("-800.webp") else name, content, **options)

    add(harness)
    monkeypatch.setattr(obstore, "put", put_without_webp)
    with pytest.raises(Unavailable, match="can't be stored"):
        add(harness, 2)
    assert len(bucket.list_files()) == 4
    assert list_local_files(harness) == []
