# One life cycle with the client that openapi-generator makes for Ruby, over Debian's Typhoeus.
require 'json'
require 'shop_client'
require 'uri'

def connect(key)
  configuration = Shop::Configuration.new
  address = URI(ENV.fetch('LISTINGS_URL'))
  configuration.scheme = address.scheme
  configuration.host = "#{address.host}:#{address.port}"
  configuration.server_index = nil
  configuration.api_key['X-API-Key'] = key
  Shop::ListingsApi.new(Shop::ApiClient.new(configuration))
end

def check(holds, message = 'a check failed')
  raise message unless holds
end

# Check that a call fails with this status and code.
def expect(status, code)
  yield
rescue Shop::ApiError => e
  headers = e.response_headers.transform_keys(&:downcase)
  check [e.code, headers['x-error-code']] == [status, code], e.message
  check !Shop::ErrorBody.build_from_hash(JSON.parse(e.response_body, symbolize_names: true)).error.empty?
else
  raise "no error with status #{status}"
end

ALICE = connect(ENV.fetch('ALICE_KEY'))

def create(title, price)
  listing = Shop::ListingCreate.new(title: title, content: 'Solid heart rimu.', price: price)
  listing.price_type = Shop::PriceType::NEGOTIABLE
  ALICE.create_listing(listing).id
end

def list_by_pages
  create('Road bike', 950)
  create('Guitar', 300)
  found = []
  query = { limit: 2, sort: Shop::SortOrder::ID }
  loop do
    page, _, headers = ALICE.list_listings_with_http_info(query)
    found.concat(page.listings.map(&:id))
    cursor = headers.transform_keys(&:downcase)['x-next-cursor']
    break if cursor.nil?

    query = query.merge(cursor: cursor)
  end
  check found.uniq.size == 3
end

def update_one_field(id)
  _, _, headers = ALICE.get_listing_with_http_info(id)
  tag = headers.transform_keys(&:downcase)['etag']
  change = Shop::ListingUpdate.new(price: 1100.5)
  ALICE.update_listing(id, change, if_match: tag)
  check ALICE.get_listing(id).price == 1100.5
  expect(412, Shop::ErrorCode::PRECONDITION_FAILED) { ALICE.update_listing(id, change, if_match: tag) }
end

def replay
  lamp = Shop::ListingCreate.new(title: 'Lamp', content: 'Brass.')
  first, second = Array.new(2) { ALICE.create_listing(lamp, idempotency_key: 'lamp-1').id }
  check first == second
end

def run_batch(id)
  stool = Shop::ListingPut.new(external_id: 'stool', title: 'Stool', content: 'Oak.')
  put = Shop::PutOperation.new(op: 'put', listing: stool)
  batch = Shop::Batch.new(operations: [
    Shop::CreateOperation.new(op: 'create', ref: 'chair', listing: Shop::ListingCreate.new(title: 'Chair', content: 'Oak.')),
    Shop::UpdateOperation.new(op: 'update', id: id, changes: Shop::ListingUpdate.new(region: 'Otago')),
    Shop::DeleteOperation.new(op: 'delete', external_id: 'nothing'),
    put,
    put
  ])
  made, changed, failed, first, second = ALICE.run_batch(batch).results
  check made.status == 201 && made.ref == 'chair' && made.body.id.positive?
  check changed.body.message == 'listing updated'
  check failed.code == 'listing_not_found' && failed.body.error
  check first.op == 'create' && second.op == 'update' && first.id == second.id
  check ALICE.run_batch(batch, dry_run: true).results.first.body.message == 'listing would be created'
  shelf = Shop::ListingCreate.new(title: 'Shelf', content: 'Oak.')
  check ALICE.create_listing(shelf, prefer: 'return=representation').id.positive?
end

def delete_and_restore(id)
  ALICE.delete_listing(id)
  expect(404, Shop::ErrorCode::LISTING_NOT_FOUND) { ALICE.get_listing(id) }
  ALICE.restore_listing(id)
  check !ALICE.get_listing(id).is_active
end

def read_errors(id)
  bob = connect(ENV.fetch('BOB_KEY'))
  expect(401, Shop::ErrorCode::INVALID_API_KEY) { connect('wrong').get_listing(id) }
  expect(403, Shop::ErrorCode::PLAN_EXPIRED) { connect(ENV.fetch('CHARLIE_KEY')).get_listing(id) }
  expect(403, Shop::ErrorCode::NOT_OWNER) { bob.get_listing(id) }
  expect(429, Shop::ErrorCode::RATE_LIMITED) { 100.times { bob.list_listings } }
end

# Read codes, actors and kinds that a later version of the service may add.
def decode_unknown_values
  known = JSON.parse(File.read(ENV.fetch('UNKNOWN_VALUES')), symbolize_names: true)
  batch = Shop::BatchResults.build_from_hash(known[:batch])
  changes = Shop::ChangeSets.build_from_hash(known[:changes])
  check batch.results.first.code == 'teapot'
  check changes.change_sets.first.actor.type == 'agent'
end

id = create('Rimu table', 249_999.99)
listing = ALICE.get_listing(id)
check [listing.price, listing.price_type] == [249_999.99, Shop::PriceType::NEGOTIABLE]
list_by_pages
update_one_field(id)
replay
run_batch(id)
delete_and_restore(id)
read_errors(id)
decode_unknown_values
puts 'ruby: the life cycle is complete'
