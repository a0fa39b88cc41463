'use strict'
// The listing API on fastify and better-sqlite3.

const { createHash } = require('node:crypto')
const fastify = require('fastify')
const { open, prepare } = require('./database')
const { SlidingLog } = require('./limiter')
const schemas = require('./schemas')
const { ApiError, Listings } = require('./listings')

const RATE_LIMIT = 1000

function secretOf (request) {
  const key = request.headers['x-api-key']
  if (key) return key
  const [scheme, token] = (request.headers.authorization ?? '').split(' ')
  return scheme.toLowerCase() === 'bearer' ? token : undefined
}

async function build ({ database, rateWindow }) {
  const app = fastify({ logger: false, bodyLimit: 2 * 1024 * 1024 })
  const db = open(database)
  const statements = prepare(db)
  const listings = new Listings(db, statements)
  const limiter = new SlidingLog(RATE_LIMIT, rateWindow)

  await app.register(require('@fastify/etag'))
  await app.register(require('@fastify/compress'))
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

  app.get('/api/v1/listings', { schema: schemas.list }, async (request, reply) => {
    const { rows, next } = listings.find(request.accountId, request.query)
    if (next !== undefined) reply.header('x-next-cursor', next)
    return { listings: rows }
  })

  app.post('/api/v1/listings', { schema: schemas.create }, async (request, reply) => {
    reply.code(201)
    const key = request.headers['idempotency-key']
    if (key === undefined) return listings.create(request.accountId, request.body)
    return listings.createOnce(request.accountId, request.body, key)
  })

  app.get('/api/v1/listings/:id', { schema: schemas.getOne }, async (request) => {
    return listings.get(request.accountId, request.params.id)
  })

  app.patch('/api/v1/listings/:id', { schema: schemas.update }, async (request) => {
    return listings.update(request.accountId, request.params.id, request.body)
  })

  app.delete('/api/v1/listings/:id', { schema: schemas.remove }, async (request) => {
    return listings.remove(request.accountId, request.params.id)
  })

  app.post('/api/v1/listings/batch', { schema: schemas.batch }, async (request) => {
    return { results: listings.runBatch(request.accountId, request.body.operations) }
  })

  return app
}

module.exports = { build }
