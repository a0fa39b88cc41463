'use strict'
// Reads and writes of listings; each write is one transaction.

class ApiError extends Error {
  constructor (statusCode, message) {
    super(message)
    this.statusCode = statusCode
  }
}

function shown (row) {
  return {
    ...row,
    images: JSON.parse(row.images),
    price: row.price_cents / 100,
    is_active: row.is_active === 1
  }
}

// Return the given fields as columns.
function columnsOf ({ images, price, is_active: isActive, ...columns }) {
  if (images !== undefined) columns.images = JSON.stringify(images)
  if (price !== undefined) columns.price_cents = Math.round(price * 100)
  if (isActive !== undefined) columns.is_active = isActive ? 1 : 0
  return columns
}

function timestamp () {
  return new Date().toISOString().slice(0, 19).replace('T', ' ')
}

class Listings {
  constructor (db, statements) {
    this.statements = statements
    this.createOnce = db.transaction(this._createOnce.bind(this))
    this.update = db.transaction(this._update.bind(this))
    this.remove = db.transaction(this._remove.bind(this))
    this.runBatch = db.transaction((account, operations) => operations.map((it) => this._run(account, it)))
  }

  get (account, id) {
    return shown(this._find(account, id))
  }

  find (account, { limit, cursor, q, price_min: min, price_max: max, updated_since: since, ...query }) {
    const values = { ...query, account, limit: limit === undefined ? -1 : limit + 1 }
    if (q !== undefined) q.split(/\s+/).forEach((word, index) => { values[`q${index}`] = `%${word}%` })
    if (min !== undefined) values.price_min = Math.round(min * 100)
    if (max !== undefined) values.price_max = Math.round(max * 100)
    if (since !== undefined) values.updated_since = since.replace('T', ' ').replace('Z', '')
    if (cursor !== undefined) [values.last, values.last_id] = JSON.parse(Buffer.from(cursor, 'base64url').toString())
    const { statement, column } = this.statements.listing(values)
    const rows = statement.all(values)
    if (limit === undefined || rows.length <= limit) return { rows: rows.map(shown) }
    rows.pop()
    const last = rows.at(-1)
    const next = Buffer.from(JSON.stringify([last[column], last.id])).toString('base64url')
    return { rows: rows.map(shown), next }
  }

  _find (account, id) {
    const row = this.statements.findListing.get(id)
    if (row === undefined) throw new ApiError(404, 'Listing not found')
    if (row.account_id !== account) throw new ApiError(403, 'This listing belongs to another account')
    if (row.deleted_at !== null) throw new ApiError(404, 'Listing not found')
    return row
  }

  create (account, listing) {
    return { id: this._insert(this.statements.insertListing, account, listing), message: 'listing created' }
  }

  _createOnce (account, listing, key) {
    const stored = this.statements.findResponse.get(account, key)
    if (stored !== undefined) return JSON.parse(stored.body)
    const body = this.create(account, listing)
    this.statements.storeResponse.run(account, key, JSON.stringify(body), timestamp())
    return body
  }

  _insert (statement, account, listing) {
    const columns = columnsOf(listing)
    return statement.get({
      latitude: null, longitude: null, external_id: null, ...columns, account_id: account, now: timestamp()
    }).id
  }

  _update (account, id, changes) {
    const row = this._find(account, id)
    this.statements.updateListing.run({ ...row, ...columnsOf(changes), now: timestamp() })
    return { message: 'listing updated' }
  }

  _remove (account, id) {
    this._find(account, id)
    this.statements.deleteListing.run({ id, now: timestamp(), seconds: Math.floor(Date.now() / 1000) })
    return { message: 'listing deleted' }
  }

  _run (account, { op, id, listing, changes }) {
    try {
      if (op === 'create') return { status: 201, body: this.create(account, listing) }
      if (op === 'update') return { status: 200, body: this._update(account, id, changes) }
      if (op === 'delete') return { status: 200, body: this._remove(account, id) }
      id = this._insert(this.statements.putListing, account, listing)
      return { op, id, status: 200, body: { message: 'listing updated' } }
    } catch (error) {
      if (!(error instanceof ApiError)) throw error
      return { status: error.statusCode, body: { error: error.message } }
    }
  }
}

module.exports = { ApiError, Listings }
