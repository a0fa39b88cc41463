'use strict'
// The schemas of requests, validated by ajv, and of responses, serialized by fast-json-stringify.

const text = { type: 'string' }
const integer = { type: 'integer' }
const types = ['product', 'service', 'rental', 'job']
const priceTypes = ['fixed', 'negotiable', 'per_hour', 'per_night']

const listing = {
  type: 'object',
  properties: {
    id: integer,
    title: text,
    content: text,
    type: text,
    category: text,
    images: { type: 'array', items: text },
    price: { type: 'number' },
    price_type: text,
    location: text,
    region: text,
    is_active: { type: 'boolean' },
    view_count: integer,
    created_at: text,
    updated_at: text
  }
}

const newListing = {
  type: 'object',
  required: ['title', 'content'],
  properties: {
    title: { type: 'string', minLength: 1, maxLength: 255 },
    content: { type: 'string', minLength: 1, maxLength: 100000 },
    type: { enum: types, default: 'product' },
    category: { type: 'string', maxLength: 100, default: '' },
    images: { type: 'array', maxItems: 50, items: { type: 'string', maxLength: 2048 }, default: [] },
    price: { type: 'number', minimum: 0, maximum: 999999999.99, default: 0 },
    price_type: { enum: priceTypes, default: 'fixed' },
    location: { type: 'string', maxLength: 255, default: '' },
    region: { type: 'string', maxLength: 100, default: '' },
    district: { type: 'string', maxLength: 100, default: '' },
    latitude: { type: 'number', minimum: -90, maximum: 90 },
    longitude: { type: 'number', minimum: -180, maximum: 180 },
    is_active: { type: 'boolean', default: true }
  }
}

const message = { type: 'object', properties: { id: integer, message: text, error: text } }
const params = { type: 'object', properties: { id: integer } }

const changes = {
  type: 'object',
  properties: Object.fromEntries(Object.entries(newListing.properties).map(([name, { default: _, ...rule }]) => {
    return [name, rule]
  }))
}

const query = {
  type: 'object',
  properties: {
    status: { enum: ['active', 'inactive', 'deleted', 'all'], default: 'active' },
    type: { enum: types },
    category: { type: 'string', maxLength: 100 },
    region: { type: 'string', maxLength: 100 },
    q: { type: 'string', minLength: 1, maxLength: 200 },
    price_min: { type: 'number', minimum: 0 },
    price_max: { type: 'number', minimum: 0 },
    updated_since: { type: 'string', pattern: '^\\d{4}-\\d\\d-\\d\\d[T ]\\d\\d:\\d\\d:\\d\\dZ?$' },
    sort: { type: 'string', pattern: '^-?(id|created_at|updated_at|price|title)$', default: '-id' },
    limit: { type: 'integer', minimum: 1, maximum: 1000 },
    cursor: text
  }
}

const operation = {
  type: 'object',
  required: ['op'],
  properties: {
    op: { enum: ['create', 'update', 'put', 'delete'] },
    id: integer,
    listing: {
      ...newListing,
      properties: { ...newListing.properties, external_id: { type: 'string', minLength: 1, maxLength: 255 } }
    },
    changes
  }
}

module.exports = {
  getOne: { params, response: { 200: listing } },
  list: {
    querystring: query,
    response: { 200: { type: 'object', properties: { listings: { type: 'array', items: listing } } } }
  },
  create: { body: newListing, response: { 201: message } },
  update: { params, body: changes, response: { 200: message } },
  remove: { params, response: { 200: message } },
  batch: {
    body: {
      type: 'object',
      required: ['operations'],
      properties: { operations: { type: 'array', minItems: 1, maxItems: 100, items: operation } }
    },
    response: {
      200: {
        type: 'object',
        properties: {
          results: {
            type: 'array',
            items: { type: 'object', properties: { op: text, id: integer, status: integer, body: message } }
          }
        }
      }
    }
  }
}
