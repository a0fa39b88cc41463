'use strict'
// `DATABASE=new.db node load.js listings.db`: copy a database of Listings into a new database.
// Prints the new keys of the accounts as JSON: none, because both store the same hash of a key.

const Database = require('better-sqlite3')
const { open } = require('./database')

const source = new Database(process.argv[2], { readonly: true })
const target = open(process.env.DATABASE)

function copy (query, table) {
  for (const row of source.prepare(query).iterate()) {
    const names = Object.keys(row)
    target.prepare(`INSERT INTO ${table} (${names}) VALUES (${names.map((name) => `@${name}`)})`).run(row)
  }
}

target.transaction(() => {
  copy('SELECT id, name, email, plan_expires_at FROM accounts', 'accounts')
  copy('SELECT id, account_id, digest AS key_hash FROM api_keys WHERE revoked_at IS NULL', 'api_keys')
  copy(`SELECT id, account_id, title, content, type, category, images, price_cents, price_type, location, region,
    district, latitude, longitude, is_active, view_count, created_at, updated_at, deleted_at FROM listings`, 'listings')
})()
target.close()
console.log('{}')
