"""POST, GET and DELETE /api/v1/images, and the files at /media."""

import os
from contextlib import ExitStack
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from httpx2 import Response
from PIL import Image

from listings.domain.pictures import find_name
from tests.api.described import check_response, get_operation
from tests.api.helpers import STRICT, assert_error, get_outcome
from tests.conftest import Client
from tests.harness import Harness, RunningService, create_member
from tests.http.raw import Connection, request
from tests.pictures import draw, encode, photo
from tests.processes import list_open_files

PATH = "/api/v1/images"
MIB = 1024 * 1024
UNKNOWN = "0123456789abcdef0123456789abcdef"


def upload(client: Client, data: bytes, query: str = "", **options: Any) -> Response:
    return client.post(f"/../images{query}", content=data, **options)


def store(client: Client, number: int = 1) -> str:
    response = upload(client, photo(number))
    assert response.status_code == 201
    url = response.json()["url"]
    assert isinstance(url, str)
    return url


def fetch_file(client: Client, url: str, **headers: str) -> Response:
    return client.get(f"/../../..{urlsplit(url).path}", headers={"X-API-Key": "", **headers})


def list_urls(client: Client) -> list[str]:
    return [image["url"] for image in client.get("/../images").json()["images"]]


@pytest.mark.every_engine
@pytest.mark.decision("G56")
def test_an_uploaded_picture_has_a_url_that_shows_it(alice: Client) -> None:
    response = upload(alice, encode(draw((2000, 1000))), headers={"Content-Type": "image/png"})
    check_response(get_operation(PATH, "POST"), response)
    body = response.json()
    assert (response.status_code, body["width"], body["height"]) == (201, 1600, 800)
    assert response.headers["Location"] == body["url"]
    assert body["url"].startswith("http://127.0.0.1")
    assert find_name(body["url"]) is not None
    file = fetch_file(alice, body["url"])
    assert (file.status_code, file.headers["Content-Type"]) == (200, "image/jpeg")
    with Image.open(BytesIO(file.content)) as picture:
        assert (picture.format, picture.size) == ("JPEG", (1600, 800))
    for width in (400, 800, 1600):
        file = fetch_file(alice, body["url"].replace(".jpg", f"-{width}.webp"))
        assert file.headers["Content-Type"] == "image/webp"
        with Image.open(BytesIO(file.content)) as picture:
            assert (picture.format, picture.size) == ("WEBP", (width, width // 2))


def test_the_headers_of_a_file_allow_caches_and_other_sites(alice: Client) -> None:
    file = fetch_file(alice, store(alice))
    assert file.headers["Cache-Control"] == "public, max-age=31536000, s-maxage=86400, immutable"
    assert file.headers["X-Content-Type-Options"] == "nosniff"
    assert file.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert file.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert "Set-Cookie" not in file.headers
    assert not [name for name in file.headers if "ratelimit" in name.lower()]
    assert int(file.headers["Content-Length"]) == len(file.content)


def test_a_file_has_a_strong_tag(alice: Client) -> None:
    url = store(alice)
    tag = fetch_file(alice, url).headers["ETag"]
    assert tag.startswith('"')
    current = fetch_file(alice, url, **{"If-None-Match": f'W/"other", {tag}'})
    assert (current.status_code, current.content, current.headers["ETag"]) == (304, b"", tag)
    assert "max-age=31536000" in current.headers["Cache-Control"]
    assert fetch_file(alice, url, **{"If-None-Match": '"other"'}).status_code == 200


def test_head_describes_a_file_without_sending_it(alice: Client) -> None:
    url = store(alice)
    head = alice.request("HEAD", f"/../../..{urlsplit(url).path}")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["Content-Length"]) == len(fetch_file(alice, url).content)


@pytest.mark.parametrize(
    "file", [f"{UNKNOWN}.jpg", f"{UNKNOWN}-400.webp", "x.jpg", f"{UNKNOWN}.png", ".new", "..%2f..%2flistings.db", "a/b"]
)
def test_any_other_file_is_not_found(alice: Client, file: str) -> None:
    assert alice.get(f"/../../../media/{file}").status_code == 404


def test_the_same_picture_again_has_the_same_url(alice: Client) -> None:
    url = store(alice)
    again = upload(alice, photo(1))
    check_response(get_operation(PATH, "POST"), again)
    assert (again.status_code, again.json()["url"]) == (200, url)
    assert list_urls(alice) == [url]


@pytest.mark.decision("G56")
def test_the_same_picture_has_another_url_in_another_account(alice: Client, bob: Client) -> None:
    assert store(alice) != store(bob)
    assert len(list_urls(bob)) == 1


def test_a_file_that_is_lost_is_stored_again(alice: Client, running: RunningService) -> None:
    url = store(alice)
    (running.settings.media_folder / urlsplit(url).path.rpartition("/")[2]).unlink()
    assert fetch_file(alice, url).status_code == 404
    again = upload(alice, photo(1))
    assert (again.status_code, again.json()["url"]) == (200, url)
    assert fetch_file(alice, url).status_code == 200


@pytest.mark.every_engine
def test_the_pictures_of_an_account_are_listed_in_pages(alice: Client, bob: Client) -> None:
    store(bob, 9)
    urls = [store(alice, number) for number in range(5)]
    response = alice.get("/../images?limit=2", headers=STRICT)
    check_response(get_operation(PATH, "GET"), response)
    found = response.json()["images"]
    assert set(found[0]) == {"url", "width", "height", "size", "created_at"}
    while "X-Next-Cursor" in response.headers:
        assert f'cursor={response.headers["X-Next-Cursor"]}>; rel="next"' in response.headers["Link"]
        response = alice.get(f"/../images?limit=2&cursor={response.headers['X-Next-Cursor']}")
        found += response.json()["images"]
    assert sorted(image["url"] for image in found) == sorted(urls)
    assert list_urls(alice) == [image["url"] for image in found]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "cursor=1", f"cursor=x-{UNKNOWN}", "limit=1&limit=2"])
def test_an_invalid_page_of_pictures_is_rejected(alice: Client, query: str) -> None:
    assert get_outcome(alice.get(f"/../images?{query}")) == (400, "invalid_request")


@pytest.mark.every_engine
def test_a_deleted_picture_is_gone(alice: Client) -> None:
    url = store(alice)
    name = find_name(url)
    response = alice.delete(f"/../images/{name}")
    check_response(get_operation(f"{PATH}/{{id}}", "DELETE"), response)
    assert response.json() == {"message": "picture deleted", "listings": []}
    assert fetch_file(alice, url).status_code == 404
    assert get_outcome(alice.delete(f"/../images/{name}")) == (404, "image_not_found")
    assert list_urls(alice) == []


@pytest.mark.every_engine
@pytest.mark.decision("G31")
def test_a_picture_in_use_is_deleted_only_by_force(alice: Client) -> None:
    url = store(alice)
    shown = [alice.create(images=[url]), alice.create(images=["/1.jpg", urlsplit(url).path])]
    alice.delete(f"/{alice.create(images=[url])}")
    path = f"/../images/{find_name(url)}"
    rejected = alice.delete(path)
    check_response(get_operation(f"{PATH}/{{id}}", "DELETE"), rejected)
    message = f"2 listings show this picture ({shown[0]}, {shown[1]}): remove it there, or add force=true"
    assert_error(rejected, 409, "image_in_use", message)
    assert fetch_file(alice, url).status_code == 200
    assert alice.delete(f"{path}?force=true&dry_run=true").json() == {
        "message": "picture would be deleted",
        "listings": shown,
    }
    assert fetch_file(alice, url).status_code == 200
    assert alice.delete(f"{path}?force=true").json()["listings"] == shown
    assert fetch_file(alice, url).status_code == 404


def test_another_account_can_not_delete_a_picture(alice: Client, bob: Client) -> None:
    url = store(alice)
    assert get_outcome(bob.delete(f"/../images/{find_name(url)}?force=true")) == (404, "image_not_found")
    assert fetch_file(bob, url).status_code == 200


def test_a_dry_run_checks_a_picture_without_storing_it(alice: Client, running: RunningService) -> None:
    before = sorted(running.settings.media_folder.rglob("*.*"))
    response = upload(alice, photo(77), "?dry_run=true")
    assert (response.status_code, response.json()) == (200, {"message": "picture would be stored"})
    assert get_outcome(upload(alice, b"%PDF", "?dry_run=true")) == (400, "invalid_image")
    assert list_urls(alice) == []
    assert sorted(running.settings.media_folder.rglob("*.*")) == before


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", photo()[:100], b"GIF89a"])
def test_what_is_no_picture_is_rejected(alice: Client, data: bytes) -> None:
    response = upload(alice, data)
    check_response(get_operation(PATH, "POST"), response)
    assert get_outcome(response) == (400, "invalid_image")
    assert list_urls(alice) == []


def test_a_form_is_not_the_bytes_of_a_picture(alice: Client) -> None:
    response = alice.post("/../images", files={"picture": ("a.jpg", photo(), "image/jpeg")})
    assert get_outcome(response) == (400, "invalid_image")


def test_an_upload_of_more_than_20_mib_is_rejected(alice: Client) -> None:
    response = upload(alice, photo() + bytes(20 * MIB))
    check_response(get_operation(PATH, "POST"), response)
    assert get_outcome(response) == (413, "body_too_large")


def test_an_upload_of_almost_20_mib_is_accepted(alice: Client) -> None:
    data = photo(5)
    assert upload(alice, data + bytes(20 * MIB - len(data))).status_code == 201


@pytest.mark.decision("G21")
def test_an_upload_is_checked_in_the_order_of_g21(alice: Client, charlie: Client, running: RunningService) -> None:
    account = str(alice.person.account.id)
    reader = running.run(lambda services: services.keys.create(account, "reader", access="read")).secret
    compressed = {"Content-Encoding": "gzip"}
    assert get_outcome(upload(alice, b"x", headers={"X-API-Key": "no"})) == (401, "invalid_api_key")
    assert get_outcome(upload(charlie, b"x", headers=compressed)) == (403, "plan_expired")
    assert get_outcome(upload(alice, b"x", headers={"X-API-Key": reader, **compressed})) == (403, "key_not_allowed")
    assert get_outcome(upload(alice, b"x", "?dry_run=x", headers=compressed)) == (415, "unsupported_encoding")
    assert get_outcome(upload(alice, bytes(21 * MIB), "?dry_run=x")) == (413, "body_too_large")
    assert get_outcome(upload(alice, b"x", "?dry_run=x")) == (400, "invalid_request")


@pytest.mark.decision("G56")
def test_pictures_of_a_disabled_account_are_not_found(alice: Client, bob: Client, running: RunningService) -> None:
    url, email = store(alice), alice.person.account.email
    running.run(lambda services: services.accounts.disable(email))
    assert fetch_file(bob, url).status_code == 404
    running.run(lambda services: services.accounts.enable(email))
    assert fetch_file(bob, url).status_code == 200


def test_pictures_are_served_without_the_website(tmp_path: Path) -> None:
    with Harness(tmp_path, site="off", base_url="https://example.com/shop") as harness:
        key = harness.person("alice").key
        reply = harness.fetch("POST", f"/shop{PATH}", key=key, body=photo())
        url = reply.json()["url"]
        assert url.startswith("https://example.com/shop/media/")
        assert harness.fetch("GET", urlsplit(url).path).status == 200
        assert harness.fetch("GET", urlsplit(url).path.removeprefix("/shop")).status == 404


def test_the_scheme_of_a_proxy_is_in_the_url(alice: Client) -> None:
    response = upload(alice, photo(), headers={"X-Forwarded-Proto": "https", "Host": "market.example"})
    assert response.json()["url"].startswith("https://market.example/media/")


@pytest.mark.decision("G56")
def test_too_many_uploads_of_an_account_are_rejected(alice: Client, bob: Client, running: RunningService) -> None:
    data = photo()
    with ExitStack() as stack:
        uploads = [stack.enter_context(begin_upload(running, alice.person.key, data)) for _ in range(3)]
        response = upload(alice, data)
        assert get_outcome(response) == (503, "unavailable")
        assert int(response.headers["Retry-After"]) > 0
        assert upload(bob, data).status_code == 201
        assert {one.send(data[-1:]).read_response().status for one in uploads} == {201, 200}
    assert upload(alice, data).status_code == 200


def test_uploads_of_all_accounts_together_are_limited(tmp_path: Path) -> None:
    with RunningService(tmp_path) as service, ExitStack() as stack:
        people = [service.run(partial(create_member, name=f"seller{number}")) for number in range(8)]
        for number in range(20):
            stack.enter_context(begin_upload(service, people[number // 3].key, photo()))
        with Connection(service).send(request("POST", PATH, people[7].key, body=photo())) as late:
            response = late.read_response()
        assert (response.status, response.headers["retry-after"]) == (503, "1")


def test_a_stalled_upload_is_not_in_memory(alice: Client, running: RunningService) -> None:
    data = photo(1) + bytes(5 * MIB)
    with begin_upload(running, alice.person.key, data) as connection:
        descriptors = list_open_files(os.getpid()).values()
        unlinked = [path for path in descriptors if str(running.settings.media_folder) in path and "(deleted)" in path]
        assert len(unlinked) == 1
        assert connection.send(data[-1:]).read_response().status == 201


def begin_upload(service: RunningService, key: str, data: bytes) -> Connection:
    """Send a request but for its last byte, after the service has begun to read the body."""
    head = request("POST", PATH, key, b"Expect: 100-continue", b"Content-Length: %d" % len(data))
    connection = Connection(service).send(head)
    assert connection.socket.recv(1000).startswith(b"HTTP/1.1 100 ")
    return connection.send(data[:-1])


def test_a_service_without_its_folder_rejects_uploads_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with Harness(tmp_path, media_url=f"file://{tmp_path}/file/media") as harness:
        key = harness.person("alice").key
        reply = harness.fetch("POST", PATH, key=key, body=photo())
        assert (reply.status, reply.headers["x-error-code"]) == (503, "unavailable")
        assert harness.fetch("GET", PATH, key=key).json() == {"images": []}
        assert harness.fetch("GET", f"/media/{UNKNOWN}.jpg").status == 404
