'use strict'
// The connection, the schema and the statements of the database.

const Database = require('better-sqlite3')

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE,
    plan_expires_at INTEGER
  );
  CREATE TABLE IF NOT EXISTS api_keys (
    id INTEGER PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    key_hash BLOB NOT NULL UNIQUE,
    revoked_at INTEGER
  );
  CREATE TABLE IF NOT EXISTS listings (
    id INTEGER PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    title TEXT NOT NULL,
    content TEXT NOT NULL,
    type TEXT NOT NULL,
    category TEXT NOT NULL,
    images TEXT NOT NULL,
    price_cents INTEGER NOT NULL,
    price_type TEXT NOT NULL,
    location TEXT NOT NULL,
    region TEXT NOT NULL,
    district TEXT NOT NULL,
    latitude REAL,
    longitude REAL,
    is_active INTEGER NOT NULL DEFAULT 1,
    view_count INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    deleted_at INTEGER,
    external_id TEXT
  );
  CREATE INDEX IF NOT EXISTS listings_active ON listings (account_id, id DESC)
    WHERE is_active = 1 AND deleted_at IS NULL;
  CREATE INDEX IF NOT EXISTS listings_updated ON listings (account_id, updated_at DESC, id DESC)
    WHERE is_active = 1 AND deleted_at IS NULL;
  CREATE UNIQUE INDEX IF NOT EXISTS listings_external ON listings (account_id, external_id)
    WHERE external_id IS NOT NULL AND deleted_at IS NULL;
  CREATE TABLE IF NOT EXISTS responses (
    account_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (account_id, key)
  ) WITHOUT ROWID;
`

const SHOWN = `id, account_id, title, content, type, category, images, price_cents, price_type, location, region,
  district, latitude, longitude, external_id, is_active, view_count, created_at, updated_at, deleted_at`

function open (path) {
  const db = new Database(path)
  db.pragma('journal_mode = WAL')
  db.pragma('synchronous = FULL')
  db.pragma('foreign_keys = ON')
  db.pragma('busy_timeout = 5000')
  db.exec(SCHEMA)
  return db
}

const INSERT = `
  INSERT INTO listings (account_id, title, content, type, category, images, price_cents, price_type, location,
    region, district, latitude, longitude, external_id, is_active, created_at, updated_at)
  VALUES (@account_id, @title, @content, @type, @category, @images, @price_cents, @price_type, @location,
    @region, @district, @latitude, @longitude, @external_id, @is_active, @now, @now)`

const FIELDS = ['title', 'content', 'type', 'category', 'images', 'price_cents', 'price_type', 'location', 'region',
  'district', 'latitude', 'longitude', 'is_active']

const STATES = {
  active: 'is_active = 1 AND deleted_at IS NULL',
  inactive: 'is_active = 0 AND deleted_at IS NULL',
  deleted: 'deleted_at IS NOT NULL',
  all: '1'
}

const FILTERS = {
  type: 'type = @type',
  category: 'category = @category',
  region: 'region = @region',
  price_min: 'price_cents >= @price_min',
  price_max: 'price_cents <= @price_max',
  updated_since: 'updated_at >= @updated_since'
}

// Return a function that prepares the statement of a list, once for each set of parameters.
function prepareLists (db) {
  const prepared = new Map()
  return ({ status, sort, ...values }) => {
    const names = Object.keys(values).filter((name) => name in FILTERS || name === 'last' || /^q\d$/.test(name))
    const key = [status, sort, ...names].join()
    if (!prepared.has(key)) prepared.set(key, prepareList(db, status, sort, names))
    return prepared.get(key)
  }
}

function prepareList (db, status, sort, names) {
  const column = sort.replace('-', '').replace(/^price$/, 'price_cents')
  const [order, sign] = sort.startsWith('-') ? ['DESC', '<'] : ['ASC', '>']
  const filters = names.map((name) => {
    if (name === 'last') return `(${column}, id) ${sign} (@last, @last_id)`
    return FILTERS[name] ?? `(title LIKE @${name} OR content LIKE @${name})`
  })
  const where = ['account_id = @account', STATES[status], ...filters].join(' AND ')
  const by = column === 'id' ? `id ${order}` : `${column} ${order}, id ${order}`
  return { column, statement: db.prepare(`SELECT ${SHOWN} FROM listings WHERE ${where} ORDER BY ${by} LIMIT @limit`) }
}

function prepare (db) {
  return {
    findKey: db.prepare(`
      SELECT api_keys.id, api_keys.account_id, accounts.plan_expires_at
      FROM api_keys JOIN accounts ON accounts.id = api_keys.account_id
      WHERE api_keys.key_hash = ? AND api_keys.revoked_at IS NULL`),
    findListing: db.prepare(`SELECT ${SHOWN} FROM listings WHERE id = ?`),
    listing: prepareLists(db),
    insertListing: db.prepare(`${INSERT} RETURNING id`),
    putListing: db.prepare(`${INSERT}
      ON CONFLICT (account_id, external_id) WHERE external_id IS NOT NULL AND deleted_at IS NULL
      DO UPDATE SET ${FIELDS.map((name) => `${name} = excluded.${name}`)}, updated_at = @now RETURNING id`),
    updateListing: db.prepare(`
      UPDATE listings SET ${FIELDS.map((name) => `${name} = @${name}`)}, updated_at = @now WHERE id = @id`),
    deleteListing: db.prepare('UPDATE listings SET deleted_at = @seconds, updated_at = @now WHERE id = @id'),
    findResponse: db.prepare('SELECT body FROM responses WHERE account_id = ? AND key = ?'),
    storeResponse: db.prepare('INSERT INTO responses (account_id, key, body, created_at) VALUES (?, ?, ?, ?)')
  }
}

module.exports = { open, prepare }
