<?php
// One life cycle with the client that openapi-generator makes for PHP, over Debian's Guzzle.
declare(strict_types=1);

require 'GuzzleHttp/autoload.php';
spl_autoload_register(function (string $class): void {
    $file = getenv('CLIENT') . '/lib/' . str_replace('\\', '/', substr($class, strlen('Shop\\'))) . '.php';
    if (str_starts_with($class, 'Shop\\') && is_file($file)) {
        require $file;
    }
});

use Shop\Api\ListingsApi;
use Shop\ApiException;
use Shop\Configuration;
use Shop\Model;
use Shop\ObjectSerializer;

$alice = connect(getenv('ALICE_KEY'));

function check(bool $holds, string $message = 'a check failed'): void
{
    if (!$holds) {
        throw new Exception($message . ': ' . (new Exception())->getTraceAsString());
    }
}

function connect(string $key): ListingsApi
{
    $configuration = (new Configuration())->setHost(getenv('LISTINGS_URL'))->setApiKey('X-API-Key', $key);
    return new ListingsApi(new GuzzleHttp\Client(), $configuration);
}

function create(string $title, float $price): int
{
    global $alice;
    $listing = new Model\ListingCreate(['title' => $title, 'content' => 'Solid heart rimu.', 'price' => $price]);
    return $alice->createListing($listing->setPriceType(Model\PriceType::NEGOTIABLE))->getId();
}

function listByPages(ListingsApi $alice): void
{
    create('Road bike', 950);
    create('Guitar', 300);
    $found = [];
    $cursor = null;
    do {
        [$page, , $headers] = $alice->listListingsWithHttpInfo(limit: 2, sort: Model\SortOrder::ID, cursor: $cursor);
        array_push($found, ...array_map(fn ($listing) => $listing->getId(), $page->getListings()));
        $cursor = $headers['X-Next-Cursor'][0] ?? $headers['x-next-cursor'][0] ?? null;
    } while ($cursor !== null);
    check(count(array_unique($found)) === 3);
}

function updateOneField(ListingsApi $alice, int $id): void
{
    [, , $headers] = $alice->getListingWithHttpInfo($id);
    $tag = ($headers['ETag'] ?? $headers['etag'])[0];
    $change = new Model\ListingUpdate(['price' => 1100.5]);
    $alice->updateListing($id, $change, if_match: $tag);
    check($alice->getListing($id)->getPrice() === 1100.5);
    expect(412, Model\ErrorCode::PRECONDITION_FAILED, fn () => $alice->updateListing($id, $change, if_match: $tag));
}

function replay(ListingsApi $alice): void
{
    $lamp = new Model\ListingCreate(['title' => 'Lamp', 'content' => 'Brass.']);
    $ids = [];
    for ($attempt = 0; $attempt < 2; $attempt++) {
        $ids[] = $alice->createListing($lamp, idempotency_key: 'lamp-1')->getId();
    }
    check($ids[0] === $ids[1]);
}

function runBatch(ListingsApi $alice, int $id): void
{
    $stool = new Model\ListingPut(['external_id' => 'stool', 'title' => 'Stool', 'content' => 'Oak.']);
    $put = new Model\PutOperation(['op' => 'put', 'listing' => $stool]);
    $chair = new Model\ListingCreate(['title' => 'Chair', 'content' => 'Oak.']);
    $region = new Model\ListingUpdate(['region' => 'Otago']);
    $batch = new Model\Batch(['operations' => [
        new Model\CreateOperation(['op' => 'create', 'ref' => 'chair', 'listing' => $chair]),
        new Model\UpdateOperation(['op' => 'update', 'id' => $id, 'changes' => $region]),
        new Model\DeleteOperation(['op' => 'delete', 'external_id' => 'nothing']),
        $put,
        $put,
    ]]);
    [$made, $changed, $failed, $first, $second] = $alice->runBatch($batch)->getResults();
    check($made->getStatus() === 201 && $made->getRef() === 'chair' && $made->getBody()->getId() > 0);
    check($changed->getBody()->getMessage() === 'listing updated');
    check($failed->getCode() === 'listing_not_found' && $failed->getBody()->getError() !== null);
    check($first->getOp() === 'create' && $second->getOp() === 'update' && $first->getId() === $second->getId());
    $planned = $alice->runBatch($batch, dry_run: true)->getResults()[0];
    check($planned->getBody()->getMessage() === 'listing would be created');
    $shelf = new Model\ListingCreate(['title' => 'Shelf', 'content' => 'Oak.']);
    check($alice->createListing($shelf, prefer: 'return=representation')->getId() > 0);
}

function deleteAndRestore(ListingsApi $alice, int $id): void
{
    $alice->deleteListing($id);
    expect(404, Model\ErrorCode::LISTING_NOT_FOUND, fn () => $alice->getListing($id));
    $alice->restoreListing($id);
    check($alice->getListing($id)->getIsActive() === false);
}

function readErrors(int $id): void
{
    $bob = connect(getenv('BOB_KEY'));
    $charlie = connect(getenv('CHARLIE_KEY'));
    expect(401, Model\ErrorCode::INVALID_API_KEY, fn () => connect('wrong')->getListing($id));
    expect(403, Model\ErrorCode::PLAN_EXPIRED, fn () => $charlie->getListing($id));
    expect(403, Model\ErrorCode::NOT_OWNER, fn () => $bob->getListing($id));
    expect(429, Model\ErrorCode::RATE_LIMITED, function () use ($bob): void {
        for ($count = 0; $count < 100; $count++) {
            $bob->listListings();
        }
    });
}

/** Read codes, actors and kinds that a later version of the service may add. */
function decodeUnknownValues(): void
{
    $known = json_decode(file_get_contents(getenv('UNKNOWN_VALUES')));
    $batch = ObjectSerializer::deserialize($known->batch, Model\BatchResults::class);
    $changes = ObjectSerializer::deserialize($known->changes, Model\ChangeSets::class);
    check($batch->getResults()[0]->getCode() === 'teapot');
    check($changes->getChangeSets()[0]->getActor()->getType() === 'agent');
}

/** Check that a call fails with this status and code, and a typed body. */
function expect(int $status, string $code, callable $call): void
{
    try {
        $call();
    } catch (ApiException $error) {
        $headers = array_change_key_case($error->getResponseHeaders());
        check([$error->getCode(), $headers['x-error-code'][0]] === [$status, $code], (string) $error->getMessage());
        check($error->getResponseObject()->getError() !== '');
        return;
    }
    throw new AssertionError("no error with status $status");
}

$id = create('Rimu table', 249999.99);
check($alice->getListing($id)->getPrice() === 249999.99);
check($alice->getListing($id)->getPriceType() === Model\PriceType::NEGOTIABLE);
listByPages($alice);
updateOneField($alice, $id);
replay($alice);
runBatch($alice, $id);
deleteAndRestore($alice, $id);
readErrors($id);
decodeUnknownValues();
echo "php: the life cycle is complete\n";
