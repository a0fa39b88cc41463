'use strict'
// The listing API on fastify and better-sqlite3.

const { createHash } = require('node:crypto')
const fastify = require('fastify')
const { open, prepare } = require('./database')
const { SlidingLog } = require('./limiter')
const schemas = require('./schemas')

const RATE_LIMIT = 1000

class ApiError extends Error {
  constructor (statusCode, message) {
    super(message)
    this.statusCode = statusCode
  }
}

function secretOf (request) {
  const key = request.headers['x-api-key']
  if (key) return key
  const [scheme, token] = (request.headers.authorization ?? '').split(' ')
  return scheme.toLowerCase() === 'bearer' ? token : undefined
}

function shown (row) {
  return {
    ...row,
    images: JSON.parse(row.images),
    price: row.price_cents / 100,
    is_active: row.is_active === 1
  }
}

function timestamp () {
  return new Date().toISOString().slice(0, 19).replace('T', ' ')
}

function build ({ database, rateWindow }) {
  const app = fastify({ logger: false })
  const db = open(database)
  const statements = prepare(db)
  const limiter = new SlidingLog(RATE_LIMIT, rateWindow)

  app.decorateRequest('accountId', 0)
  app.addHook('onClose', async () => db.close())

  app.addHook('onRequest', async (request) => {
    const secret = secretOf(request)
    if (!secret) throw new ApiError(401, 'API key is required')
    const key = statements.findKey.get(createHash('sha256').update(secret).digest())
    if (key === undefined) throw new ApiError(401, 'Invalid API key')
    if (!limiter.accept(key.id)) throw new ApiError(429, 'Rate limit exceeded')
    if (!(key.plan_expires_at > Date.now() / 1000)) throw new ApiError(403, 'Business plan expired')
    request.accountId = key.account_id
  })

  app.setErrorHandler((error, _request, reply) => {
    reply.code(error.statusCode ?? 500).send({ error: error.message })
  })
  app.setNotFoundHandler((_request, reply) => {
    reply.code(404).send({ error: 'Not found' })
  })

  app.get('/api/v1/listings', { schema: schemas.list }, async (request) => {
    return { listings: statements.listActive.all(request.accountId).map(shown) }
  })

  app.post('/api/v1/listings', { schema: schemas.create }, async (request, reply) => {
    const { images, price, is_active: isActive, ...given } = request.body
    const { lastInsertRowid } = statements.insertListing.run({
      latitude: null,
      longitude: null,
      ...given,
      account_id: request.accountId,
      images: JSON.stringify(images),
      price_cents: Math.round(price * 100),
      is_active: isActive ? 1 : 0,
      now: timestamp()
    })
    reply.code(201)
    return { id: lastInsertRowid, message: 'listing created' }
  })

  app.get('/api/v1/listings/:id', { schema: schemas.getOne }, async (request) => {
    const row = statements.findListing.get(request.params.id)
    if (row === undefined) throw new ApiError(404, 'Listing not found')
    if (row.account_id !== request.accountId) throw new ApiError(403, 'This listing belongs to another account')
    if (row.deleted_at !== null) throw new ApiError(404, 'Listing not found')
    return shown(row)
  })

  return app
}

module.exports = { build }
