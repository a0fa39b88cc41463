"""A restored database: what clients have from lost writes is never given out again (decision G7a)."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import gmtime, strftime
from typing import Any

import asyncpg
import pytest

from listings.api import codec, params
from listings.domain.errors import Problem
from listings.domain.mail import NewMail
from listings.domain.model import BUCKETS, Revisions
from listings.service.transfer.importer import ImportOptions
from listings.site.console.import_report import ImportReport
from listings.site.console.upload import Upload
from listings.store.postgres import restored
from listings.store.sqlite.maintenance import backup, restore
from tests.api.helpers import LISTINGS
from tests.harness import Harness, Person, Reply, cheap_passwords
from tests.postgres_server import PostgresServer
from tests.service.members import PASSWORD, sign_in

CHANGES = "/api/v1/changes"


class SqliteDatabase:
    """A database that is backed up and restored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.flags: dict[str, str] = {}
        self.file = folder / "listings.db"

    def save(self, name: str) -> None:
        backup.back_up(self.file, self.folder / name)

    def restore(self, name: str) -> None:
        restore.restore(self.file, self.folder / name, force=True)


class PostgresDatabase:
    """The same on PostgreSQL, where the service must not run meanwhile."""

    def __init__(self, folder: Path, server: PostgresServer, url: str) -> None:
        self.folder, self.url = folder, url
        self.flags = {"database": url}
        self._server = server
        self._name = url.rpartition("/")[2].partition("?")[0]

    def save(self, name: str) -> None:
        self._server.execute(f"CREATE DATABASE {name}_{self._name} TEMPLATE {self._name}")

    def restore(self, name: str) -> None:
        self._server.execute(f"DROP DATABASE {self._name}")
        self._server.execute(f"CREATE DATABASE {self._name} TEMPLATE {name}_{self._name}")
        asyncio.run(restored.finish(self.url, None))


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "sqlite":
        yield SqliteDatabase(tmp_path)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database(altered=True) as url:
        yield PostgresDatabase(tmp_path, server, url)


class Client:
    def __init__(self, database: Any) -> None:
        self.database = database
        self.harness: Harness
        self.person: Person | None = None

    @contextmanager
    def running(self) -> Iterator["Client"]:
        with cheap_passwords(), Harness(self.database.folder, **self.database.flags) as self.harness:
            self.person = self.person or self.harness.person("alice")
            yield self

    def fetch(self, method: str, path: str, **options: Any) -> Reply:
        assert self.person is not None
        return self.harness.fetch(method, path, key=self.person.key, **options)

    def create(self, **fields: Any) -> int:
        reply = self.fetch("POST", LISTINGS, json={"title": "A", "content": "c", **fields})
        assert reply.status == 201
        return int(reply.json()["id"])

    def edit(self, listing_id: int, **fields: Any) -> None:
        assert self.fetch("PATCH", f"{LISTINGS}/{listing_id}", json=fields).status == 200

    def tag(self, path: str = LISTINGS) -> str:
        return self.fetch("GET", path).headers["etag"]

    def price(self, listing_id: int) -> float:
        return float(self.fetch("GET", f"{LISTINGS}/{listing_id}").json()["price"])

    @property
    def last(self) -> int:
        return int(self.fetch("GET", f"{CHANGES}?limit=0").json()["last"])

    def undo(self, **scope: Any) -> Any:
        return self.fetch("POST", f"{CHANGES}/revert", json=scope).json()


@pytest.fixture
def client(database: Any) -> Client:
    return Client(database)


def lose_an_edit(client: Client) -> tuple[int, dict[str, Any]]:
    """Create a listing, back up, and lose a create and an edit. Return the listing, and what a client has of them."""
    with client.running():
        kept = client.create(price=1)
        client.create()
    client.database.save("saved")
    with client.running():
        lost = client.create(title="lost")
        client.edit(kept, price=2)
        seen = {
            "lost": lost,
            "list": client.tag(),
            "one": client.tag(f"{LISTINGS}/{kept}"),
            "last": client.last,
            "cursor": client.fetch("GET", f"{LISTINGS}?limit=1").headers["x-next-cursor"],
        }
    client.database.restore("saved")
    return kept, seen


@pytest.mark.decision("G35", "G53")
def test_tags_and_cursors_of_a_database_without_a_restore_stay_the_same() -> None:
    wanted = params.parse_list(b"limit=1&sort=-price&include=etag", "", strict=False)
    assert wanted.format_etag(7, Revisions(12, 3)) == '"s3.7-r12-2bd4a955b404"'
    _, cursor = wanted.build_next_page(LISTINGS, (1250, 1031))
    assert cursor == "ZEXuYCTtWzEsImQwZTIzOGFlOGVjMzU0Y2MiLDEyNTAsMTAzMV0"
    assert codec.format_new_etag("") == '"v1.0"'


def test_an_upgraded_database_has_no_restore(database: Any) -> None:
    client = Client(database)
    with client.running():
        assert client.harness.services.restore_id == ""
        lamp = client.create(price=1)
        assert client.tag(f"{LISTINGS}/{lamp}") == '"v1.0"'
        assert client.tag().startswith('"s1.')


@pytest.mark.decision("G7a", "G35", "G54")
def test_nothing_that_clients_keep_is_given_out_again(client: Client) -> None:
    kept, seen = lose_an_edit(client)
    with client.running():
        assert client.create() > seen["lost"]
        client.edit(kept, price=777)
        one = f"{LISTINGS}/{kept}"
        assert client.fetch("GET", LISTINGS, headers={"if-none-match": seen["list"]}).status == 200
        assert client.fetch("GET", one, headers={"if-none-match": seen["one"]}).status == 200
        assert client.fetch("GET", one, headers={"if-match": seen["one"]}).status == 412
        assert client.fetch("PATCH", one, json={"price": 3}, headers={"if-match": seen["one"]}).status == 412
        step = {"op": "update", "id": kept, "changes": {"price": 3}, "if_match": seen["one"]}
        batch = client.fetch("POST", f"{LISTINGS}/batch", json={"operations": [step]}).json()
        assert batch["results"][0]["status"] == 412
        assert client.price(kept) == 777


@pytest.mark.decision("G48", "G53")
def test_tags_and_cursors_have_the_id_of_the_restore(client: Client) -> None:
    kept, seen = lose_an_edit(client)
    with client.running():
        restore_id = client.harness.services.restore_id
        assert len(restore_id) == 8
        one = client.fetch("GET", f"{LISTINGS}/{kept}?include=etag")
        assert one.json()["etag"] == f'"{restore_id}v1.0"'
        assert one.headers["etag"] == f'"{restore_id}v1.0-etag"'
        assert client.tag().startswith(f'"{restore_id}s')
        created = client.fetch("POST", LISTINGS, json={"title": "B", "content": "c"})
        assert created.headers["etag"] == f'"{restore_id}v1.0"'
        (listed,) = client.fetch("GET", f"{LISTINGS}?include=etag&limit=1").json()["listings"]
        assert listed["etag"] == f'"{restore_id}v1.0"'
        steps = {"operations": [{"op": "update", "id": kept, "changes": {"price": 5}}]}
        lost = client.fetch("POST", f"{LISTINGS}/batch", json=steps, headers={"if-match": seen["list"]})
        assert lost.status == 412
        done = client.fetch("POST", f"{LISTINGS}/batch", json=steps, headers={"if-match": client.tag()})
        assert done.json()["results"][0]["etag"] == f'"{restore_id}v2.0"'
        assert client.tag().startswith(done.headers["etag"][:-1])
        old = client.fetch("GET", f"{LISTINGS}?limit=1&cursor={seen['cursor']}")
        assert (old.status, "before a backup was restored" in old.json()["error"]) == (400, True)
        cursor = client.fetch("GET", f"{LISTINGS}?limit=1").headers["x-next-cursor"]
        assert client.fetch("GET", f"{LISTINGS}?limit=1&cursor={cursor}").status == 200


@pytest.mark.decision("G45")
def test_the_feed_of_lost_changes_starts_over(client: Client) -> None:
    kept, seen = lose_an_edit(client)
    with client.running():
        start = client.last
        assert start > seen["last"]
        for _ in range(3):
            client.create()
        client.edit(kept, price=5)
        for after in (0, 2, 3, seen["last"], start - 1):
            assert client.fetch("GET", f"{CHANGES}?after={after}").status == 410
            assert client.fetch("GET", f"{CHANGES}?after={after}&timeout=1").status == 410
        feed = client.fetch("GET", f"{CHANGES}?after={start}").json()
        assert [one["id"] for one in feed["change_sets"]] == [start + 1, start + 2, start + 3, start + 4]


@pytest.mark.decision("G46")
def test_changes_from_before_the_backup_can_be_undone(client: Client) -> None:
    with client.running() as it:
        since = it.harness.clock.now
        lamp, table = it.create(price=1), it.create(price=1)
        it.harness.clock.advance(600)
        middle = it.harness.clock.now
        it.edit(lamp, price=2)
        it.edit(table, price=2)
        chair = import_chair(it)
    client.database.save("saved")
    with client.running() as it:
        it.edit(lamp, price=99)
    client.database.restore("saved")
    with client.running() as it:
        assert it.person is not None
        it.harness.clock.now = middle + 1200
        it.edit(table, price=3)
        new = it.create()
        history = it.fetch("GET", f"{LISTINGS}/{table}/changes").json()["change_sets"]
        assert [one["id"] for one in history][1:] == [4, 2]
        assert it.undo(change=3)["counts"]["reverted"] == 1
        assert it.price(lamp) == 1
        assert it.undo(**{"import": 5})["counts"]["reverted"] == 1
        assert it.fetch("GET", f"{LISTINGS}/{chair}").status == 404
        assert it.fetch("POST", f"{CHANGES}/revert", json={"change": 6}).status == 410
        when = strftime("%Y-%m-%d %H:%M:%S", gmtime(middle - 1))
        before = strftime("%Y-%m-%d %H:%M:%S", gmtime(since + 1))
        assert it.undo(key=it.person.key_id, since=when, dry_run=False)["counts"]["reverted"] >= 2
        assert (it.price(table), it.fetch("GET", f"{LISTINGS}/{new}").status) == (1, 404)
        until = it.undo(key=it.person.key_id, since=strftime("%Y-%m-%d %H:%M:%S", gmtime(since - 1)), until=before)
        assert until["counts"]["reverted"] == 2


@pytest.mark.decision("G45", "G46", "G55")
def test_groups_times_and_dry_runs_reach_across_a_restore(client: Client) -> None:
    group = {"x-change-group": "night-1"}
    with client.running() as it:
        lamp, table = it.create(price=1), it.create(price=1)
        it.harness.clock.advance(600)
        middle = it.harness.clock.now
        it.fetch("PATCH", f"{LISTINGS}/{lamp}", json={"price": 2}, headers=group)
        assert it.undo(change=1)["id"] == 1
    client.database.save("saved")
    with client.running() as it:
        it.edit(table, price=99)
        lost = it.undo(change=it.last)["id"]
    client.database.restore("saved")
    with client.running() as it:
        assert it.person is not None
        it.harness.clock.now = middle + 1200
        start = it.last
        it.fetch("PATCH", f"{LISTINGS}/{table}", json={"price": 3}, headers=group)
        (named,) = [one for one in it.fetch("GET", f"{CHANGES}/groups").json()["groups"] if one["kind"] == "group"]
        assert (named["id"], named["last"], named["change_sets"], named["changes"]) == (3, start + 1, 2, 2)
        since, until = (strftime("%Y-%m-%d %H:%M:%S", gmtime(middle + shift)) for shift in (-1, 1200))
        assert it.fetch("GET", f"{CHANGES}?since={since}").status == 410
        feed = it.fetch("GET", f"{CHANGES}?since={until}").json()
        assert ([one["id"] for one in feed["change_sets"]], feed["last"]) == ([start + 1], start + 1)
        counts = {"reverted": 2, "unchanged": 0, "conflicts": 0}
        for body in ({"group": "night-1"}, {"key": it.person.key_id, "since": since}):
            plan = it.fetch("POST", f"{CHANGES}/revert?dry_run=true", json=body).json()
            assert (plan["status"], plan["counts"]) == ("planned", counts)
        done = it.undo(group="night-1")
        assert (done["id"] > lost, done["counts"]) == (True, counts)
        assert (it.price(lamp), it.price(table)) == (1, 1)


def import_chair(client: Client) -> int:
    assert client.person is not None
    upload = Upload("x.jsonl", b'{"title": "Chair", "content": "c"}')
    task = client.harness.services.transfer.run_import(client.person.account, upload, ImportReport(), ImportOptions())
    client.harness.run(task)
    return int(client.fetch("GET", LISTINGS).json()["listings"][0]["id"])


def test_a_second_restore_is_like_the_first_one(client: Client) -> None:
    kept, first = lose_an_edit(client)
    with client.running():
        lost, tag, last = client.create(), client.tag(), client.last
        restore_id = client.harness.services.restore_id
    client.database.restore("saved")
    with client.running():
        assert client.harness.services.restore_id != restore_id
        assert client.create() > max(first["lost"], lost)
        assert client.last > last
        for old in (first["list"], tag):
            assert client.fetch("GET", LISTINGS, headers={"if-none-match": old}).status == 200
        assert client.fetch("GET", f"{CHANGES}?after={last}").status == 410
        assert client.undo(change=1)["counts"]["reverted"] == 1
        assert client.fetch("GET", f"{LISTINGS}/{kept}").status == 404


def test_accounts_and_keys_get_new_ids(client: Client) -> None:
    with client.running():
        pass
    client.database.save("saved")
    with client.running():
        lost = client.harness.person("bob")
    client.database.restore("saved")
    with client.running():
        new = client.harness.person("charlie")
        assert (new.account.id > lost.account.id, new.key_id > lost.key_id) == (True, True)


def test_sessions_and_links_do_not_come_back(client: Client) -> None:
    with client.running() as it:
        services, now = it.harness.services, int(it.harness.clock.now)
        assert it.person is not None
        account = it.person.account
        link = it.harness.run(services.invitations.create(str(account.id)))
        it.harness.run(services.invitations.accept(link, PASSWORD))
        thief = it.harness.run(sign_in(it.harness, email=account.email))
        unused = it.harness.run(services.invitations.create(str(account.id)))
        for kind in ("confirm_email", "password_reset", "buyer_message", "plan_reminder"):
            it.harness.run(it.harness.store.add_mail(NewMail(kind, kind, account.email, account.id, "{}", now)))
    client.database.save("saved")
    client.database.restore("saved")
    with client.running() as it:
        services = it.harness.services
        assert it.harness.run(services.sessions.find_member(thief)) is None
        with pytest.raises(Problem):
            it.harness.run(services.invitations.find(unused))
        mails = [it.harness.run(it.harness.store.claim_mail(now + 1, now + 99)) for _ in range(3)]
        assert sorted(mail.mail.kind for mail in mails if mail is not None) == ["buyer_message", "plan_reminder"]


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Client:
    return Client(SqliteDatabase(tmp_path))


def test_an_account_that_lost_nothing_keeps_its_change_ids(on_sqlite: Client) -> None:
    with on_sqlite.running() as it:
        it.create()
        bob = it.harness.person("bob")
        it.harness.fetch("POST", LISTINGS, key=bob.key, json={"title": "B", "content": "c"})
    on_sqlite.database.save("saved")
    with on_sqlite.running() as it:
        it.harness.fetch("POST", LISTINGS, key=bob.key, json={"title": "B", "content": "c"})
    on_sqlite.database.restore("saved")
    with on_sqlite.running() as it:
        assert it.last == 1
        assert [one["id"] for one in it.fetch("GET", f"{CHANGES}?after=0").json()["change_sets"]] == [1]
        assert it.harness.fetch("GET", f"{CHANGES}?limit=0", key=bob.key).json()["last"] == 3
        assert it.harness.fetch("GET", f"{CHANGES}?after=2", key=bob.key).status == 410


@pytest.mark.parametrize("is_missing", [False, True], ids=["damaged", "missing"])
def test_without_the_old_file_numbers_are_raised_by_a_gap(on_sqlite: Client, *, is_missing: bool) -> None:
    with on_sqlite.running() as it:
        it.create()
    on_sqlite.database.save("saved")
    if is_missing:
        on_sqlite.database.file.unlink()
    else:
        on_sqlite.database.file.write_text("not a database " * 1000)
    on_sqlite.database.restore("saved")
    with on_sqlite.running() as it:
        assert it.create() // BUCKETS > 2**26
        assert it.harness.person("bob").key_id > 2**26
        assert it.last > 2**32
        assert it.undo(change=1)["counts"]["reverted"] == 1


def test_numbers_that_the_old_file_lacks_are_raised_by_a_gap(on_sqlite: Client, tmp_path: Path) -> None:
    with on_sqlite.running() as it:
        it.create()
    shutil.copy(on_sqlite.database.file, tmp_path / "older.db")
    with on_sqlite.running() as it:
        bob = it.harness.person("bob")
        it.create()
        it.harness.fetch("POST", LISTINGS, key=bob.key, json={"title": "B", "content": "c"})
    on_sqlite.database.save("saved")
    shutil.copy(tmp_path / "older.db", on_sqlite.database.file)
    on_sqlite.database.restore("saved")
    with on_sqlite.running() as it:
        assert it.last > 2**32
        assert it.harness.fetch("GET", f"{CHANGES}?limit=0", key=bob.key).json()["last"] > 2**32
        assert it.create() // BUCKETS > 2**26


def test_ids_rise_above_the_last_known_one(postgres: PostgresServer, tmp_path: Path) -> None:
    with postgres.database(altered=True) as url:
        client = Client(PostgresDatabase(tmp_path, postgres, url))
        with client.running():
            client.create()
        asyncio.run(restored.finish(url, 5000 * BUCKETS + 7))
        with client.running():
            assert client.create() // BUCKETS == 5001


def test_a_database_in_use_is_not_finished(postgres: PostgresServer, tmp_path: Path) -> None:
    with postgres.database(altered=True) as url:
        client = Client(PostgresDatabase(tmp_path, postgres, url))
        with client.running(), pytest.raises(Problem, match="stop it first"):
            asyncio.run(restored.finish(url, None))


def test_new_sessions_use_the_id_of_a_restore(postgres: PostgresServer, tmp_path: Path) -> None:
    with postgres.database(altered=True) as url:
        client = Client(PostgresDatabase(tmp_path, postgres, url))
        with client.running():
            lamp = client.create()
            before = client.tag(f"{LISTINGS}/{lamp}")

            async def end_sessions() -> None:
                connection = await asyncpg.connect(url)
                await connection.execute("UPDATE database_id SET restore_id = 'abcdef01'")
                await connection.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                await connection.close()

            client.harness.run(end_sessions())
            assert client.tag(f"{LISTINGS}/{lamp}") == f'"abcdef01{before[1:]}'
