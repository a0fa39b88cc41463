"""Groups of change sets: imports, reverts, bulk actions of the console, and writes with the same name.

See `sql` for the conventions of the statements.
"""

from typing import TypeAlias

from listings.domain.changes import GroupOfChanges, GroupPage
from listings.domain.history import Actor, ChangeGroup
from listings.domain.model import Revisions
from listings.store import change_sql, member_sql, sql
from listings.store.mapping import ChangeState, Partition
from listings.store.query import Command, Query
from listings.store.scripts import audit
from listings.store.scripts.script import Transaction

_GroupRow: TypeAlias = tuple[int, str, str | None, int, int, int, int, int, int]

GROUP_COLUMNS = "id, kind, name, author, started_at, ended_at, last_id, sets, changes"

ADD_TO_GROUP = Query[tuple[int, int, int | None]](f"""
INSERT INTO change_groups (bucket, account_id, {GROUP_COLUMNS}, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, 1, $9, $10)
ON CONFLICT (bucket, account_id, id) DO UPDATE
SET ended_at = excluded.ended_at, last_id = excluded.last_id, sets = change_groups.sets + 1,
    changes = change_groups.changes + excluded.changes
RETURNING sets, changes, revision
""")
SET_GROUP_OF_CHANGE = Query[tuple[int]]("""
UPDATE changes SET import_id = $4 WHERE bucket = $1 AND account_id = $2 AND edit_revision = $3 AND number = 0
RETURNING moment
""")
GET_GROUP = Query[_GroupRow](
    f"SELECT {GROUP_COLUMNS} FROM change_groups WHERE bucket = $1 AND account_id = $2 AND id = $3"
)
FIND_GROUP = Query[_GroupRow](
    f"SELECT {GROUP_COLUMNS} FROM change_groups WHERE bucket = $1 AND account_id = $2 AND name = $3"
)
PAGE_GROUPS = Query[tuple[int, str, str | None, int, int, int, int, int, int, int | None]](f"""
SELECT {GROUP_COLUMNS}, CASE WHEN change_groups.kind = 'reverted' THEN (
    SELECT reverts.id FROM reverts
    WHERE reverts.bucket = $1 AND reverts.account_id = $2 AND reverts.group_id = change_groups.id) END
FROM change_groups WHERE bucket = $1 AND account_id = $2 AND id < $3
ORDER BY id DESC LIMIT $4
""")
PURGE_GROUPS = Command("DELETE FROM change_groups WHERE bucket = $1 AND account_id = $2 AND last_id <= $3")
ERASE_GROUPS = Command("DELETE FROM change_groups WHERE bucket = $1 AND account_id = $2")


async def find_id(tx: Transaction, partition: Partition, group: ChangeGroup, edit_revision: int) -> int:
    """Return the id of a group, whose first change set is `edit_revision` if it is new. The account must be locked."""
    rows = await tx.fetch(FIND_GROUP, (*partition, group.name))
    return next((int(group_id) for group_id, *_ in rows), edit_revision)


async def add(  # noqa: PLR0913, PLR0917 - the columns
    tx: Transaction, partition: Partition, group_id: int, kind: str, actor: Actor, edit_revision: int, changes: int
) -> None:
    """Add a change set to its group, which has the actor's name unless it is an import or a revert."""
    group = actor.group if kind not in {"import", "reverted"} else None
    name, is_bulk = (None, False) if group is None else (group.name, group.is_bulk)
    revision = (await tx.get(Revisions, sql.GET_REVISIONS, partition)).revision if is_bulk else None
    kind = kind if group is None else "bulk" if is_bulk else "named"
    row = (group_id, kind, name, actor.key_id, actor.moment, edit_revision, changes, revision)
    sets, total, revision = (await tx.fetch(ADD_TO_GROUP, (*partition, *row)))[0]
    if group is not None and is_bulk and revision is not None:
        detail = f'{group.detail},"listings":{total}}}'
        if sets == 1:
            await audit.record_edit(tx, partition, revision, actor, "bulk", detail, group_id)
        else:
            await tx.fetch(member_sql.SET_EVENT_DETAIL, (*partition, revision, detail))


async def read_page(tx: Transaction, partition: Partition, before: int, count: int) -> GroupPage:
    """Return the groups with ids below `before`, newest first, at most `count`."""
    rows = await tx.fetch(PAGE_GROUPS, (*partition, before, count + 1))
    state = await tx.get(ChangeState, change_sql.GET_EDIT_STATE, partition)
    return GroupPage([GroupOfChanges(*row) for row in rows[:count]], len(rows) > count, state.purged_revision)


async def add_single(tx: Transaction, partition: Partition, actor: Actor) -> None:
    """Add the account's last change set, which the actor has just written and which has one row, to its group."""
    if actor.group is None:
        return
    edit_revision = (await tx.get(ChangeState, change_sql.GET_EDIT_STATE, partition)).edit_revision
    group_id = await find_id(tx, partition, actor.group, edit_revision)
    moment = await tx.get(int, SET_GROUP_OF_CHANGE, (*partition, edit_revision, group_id))
    await add(tx, partition, group_id, "single", actor._replace(moment=moment), edit_revision, 1)
