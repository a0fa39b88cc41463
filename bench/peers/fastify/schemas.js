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

module.exports = {
  getOne: {
    params: { type: 'object', properties: { id: integer } },
    response: { 200: listing }
  },
  list: {
    response: { 200: { type: 'object', properties: { listings: { type: 'array', items: listing } } } }
  },
  create: {
    body: newListing,
    response: { 201: { type: 'object', properties: { id: integer, message: text } } }
  }
}
