'use strict'
// `node server.js`: serve the API of the database that DATABASE names.

const { build } = require('./app')

build({
  database: process.env.DATABASE ?? 'listings.db',
  rateWindow: Number(process.env.RATE_WINDOW ?? 3600)
}).then((app) => {
  process.once('SIGTERM', () => app.close())
  app.listen({ host: '127.0.0.1', port: Number(process.env.PORT ?? 3000) })
})
