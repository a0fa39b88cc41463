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
    deleted_at INTEGER
  );
  CREATE INDEX IF NOT EXISTS listings_active ON listings (account_id, id DESC)
    WHERE is_active = 1 AND deleted_at IS NULL;
`

const SHOWN = `id, account_id, title, content, type, category, images, price_cents, price_type, location, region,
  is_active, view_count, created_at, updated_at, deleted_at`

function open (path) {
  const db = new Database(path)
  db.pragma('journal_mode = WAL')
  db.pragma('synchronous = FULL')
  db.pragma('foreign_keys = ON')
  db.pragma('busy_timeout = 5000')
  db.exec(SCHEMA)
  return db
}

function prepare (db) {
  return {
    findKey: db.prepare(`
      SELECT api_keys.id, api_keys.account_id, accounts.plan_expires_at
      FROM api_keys JOIN accounts ON accounts.id = api_keys.account_id
      WHERE api_keys.key_hash = ? AND api_keys.revoked_at IS NULL`),
    findListing: db.prepare(`SELECT ${SHOWN} FROM listings WHERE id = ?`),
    listActive: db.prepare(`
      SELECT ${SHOWN} FROM listings
      WHERE account_id = ? AND is_active = 1 AND deleted_at IS NULL ORDER BY id DESC`),
    insertListing: db.prepare(`
      INSERT INTO listings (account_id, title, content, type, category, images, price_cents, price_type, location,
        region, district, latitude, longitude, is_active, created_at, updated_at)
      VALUES (@account_id, @title, @content, @type, @category, @images, @price_cents, @price_type, @location,
        @region, @district, @latitude, @longitude, @is_active, @now, @now)`)
  }
}

module.exports = { open, prepare }
