// One life cycle with the client that openapi-generator makes for Go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"

	"listings"
)

var client = listings.NewAPIClient(&listings.Configuration{
	DefaultHeader: map[string]string{},
	Servers:       listings.ServerConfigurations{{URL: os.Getenv("LISTINGS_URL")}},
})

func main() {
	alice := withKey(os.Getenv("ALICE_KEY"))
	id := createAndRead(alice)
	listByPages(alice)
	updateOneField(alice, id)
	replay(alice)
	runBatch(alice, id)
	deleteAndRestore(alice, id)
	readErrors(id)
	decodeUnknownValues()
	fmt.Println("go: the life cycle is complete")
}

func withKey(key string) context.Context {
	keys := map[string]listings.APIKey{"ApiKey": {Key: key}}
	return context.WithValue(context.Background(), listings.ContextAPIKeys, keys)
}

func createAndRead(ctx context.Context) int64 {
	created := create(ctx, "Rimu table", 249999.99)
	listing := read(ctx, created)
	check(listing.Price == 249999.99, "the price is %v", listing.Price)
	check(listing.PriceType == listings.NEGOTIABLE, "the price type is %v", listing.PriceType)
	return created
}

func create(ctx context.Context, title string, price float64) int64 {
	listing := listings.NewListingCreate(title, "Solid heart rimu.")
	listing.SetPrice(price)
	listing.SetPriceType(listings.NEGOTIABLE)
	created, _, err := client.ListingsAPI.CreateListing(ctx).ListingCreate(*listing).Execute()
	must(err)
	return created.Id
}

func read(ctx context.Context, id int64) *listings.Listing {
	listing, _, err := client.ListingsAPI.GetListing(ctx, id).Execute()
	must(err)
	return listing
}

func listByPages(ctx context.Context) {
	create(ctx, "Road bike", 950)
	create(ctx, "Guitar", 300)
	found := map[int64]bool{}
	request := client.ListingsAPI.ListListings(ctx).Limit(2).Sort(listings.ID)
	for {
		page, response, err := request.Execute()
		must(err)
		for _, listing := range page.Listings {
			found[listing.Id] = true
		}
		cursor := response.Header.Get("X-Next-Cursor")
		if cursor == "" {
			break
		}
		request = request.Cursor(cursor)
	}
	check(len(found) == 3, "%d listings on all pages", len(found))
}

func updateOneField(ctx context.Context, id int64) {
	before, response, err := client.ListingsAPI.GetListing(ctx, id).Execute()
	must(err)
	tag := response.Header.Get("ETag")
	change := listings.NewListingUpdate()
	change.SetPrice(1100.5)
	_, _, err = client.ListingsAPI.UpdateListing(ctx, id).ListingUpdate(*change).IfMatch(tag).Execute()
	must(err)
	after := *read(ctx, id)
	check(after.Price == 1100.5, "the price is %v", after.Price)
	after.Price, after.UpdatedAt = before.Price, before.UpdatedAt
	check(reflect.DeepEqual(*before, after), "another field moved: %+v, %+v", *before, after)

	_, response, err = client.ListingsAPI.UpdateListing(ctx, id).ListingUpdate(*change).IfMatch(tag).Execute()
	expect(response, err, 412, listings.PRECONDITION_FAILED)
}

func replay(ctx context.Context) {
	request := client.ListingsAPI.CreateListing(ctx).
		ListingCreate(*listings.NewListingCreate("Lamp", "Brass.")).
		IdempotencyKey("lamp-1")
	first, _, err := request.Execute()
	must(err)
	second, response, err := request.Execute()
	must(err)
	check(first.Id == second.Id, "the ids are %d and %d", first.Id, second.Id)
	check(response.Header.Get("Idempotent-Replayed") == "true", "the create was not replayed")
}

func runBatch(ctx context.Context, id int64) {
	add := listings.NewCreateOperation("create", *listings.NewListingCreate("Chair", "Oak."))
	add.SetRef("chair")
	change := listings.NewListingUpdate()
	change.SetRegion("Otago")
	stool := listings.NewListingPut("stool")
	stool.SetTitle("Stool")
	stool.SetContent("Oak.")
	update := listings.NewUpdateOperation("update", *change)
	update.SetId(id)
	remove := listings.NewDeleteOperation("delete")
	remove.SetId(1)
	put := listings.PutOperationAsBatchOperation(listings.NewPutOperation("put", *stool))
	batch := listings.NewBatch([]listings.BatchOperation{
		listings.CreateOperationAsBatchOperation(add),
		listings.UpdateOperationAsBatchOperation(update),
		listings.DeleteOperationAsBatchOperation(remove),
		put,
		put,
	})
	answer, _, err := client.ListingsAPI.RunBatch(ctx).Batch(*batch).Execute()
	must(err)
	made, changed, failed := answer.Results[0], answer.Results[1], answer.Results[2]
	check(made.Status == 201 && *made.Body.Id > 0 && made.Ref == "chair", "the create: %+v", made)
	check(changed.Status == 200 && *changed.Body.Message == "listing updated", "the update: %+v", changed)
	check(*failed.Code == string(listings.LISTING_NOT_FOUND) && *failed.Body.Error != "", "the delete: %+v", failed)
	first, second := answer.Results[3], answer.Results[4]
	check(*first.Op == "create", "the first put: %+v", first)
	check(*second.Op == "update" && *second.Id == *first.Body.Id, "the second put: %+v", second)
	planned, _, err := client.ListingsAPI.RunBatch(ctx).Batch(*batch).DryRun(true).Execute()
	must(err)
	check(*planned.Results[0].Body.Message == "listing would be created", "the dry run: %+v", planned.Results[0])
	whole, _, err := client.ListingsAPI.CreateListing(ctx).
		ListingCreate(*listings.NewListingCreate("Shelf", "Oak.")).Prefer("return=representation").Execute()
	must(err)
	check(whole.AdditionalProperties["title"] == "Shelf", "the representation: %+v", whole)
}

// decodeUnknownValues reads codes, actors and kinds that a later version of the service may add.
func decodeUnknownValues() {
	content, err := os.ReadFile(os.Getenv("UNKNOWN_VALUES"))
	must(err)
	var known struct {
		Batch   listings.BatchResults
		Changes listings.ChangeSets
	}
	must(json.Unmarshal(content, &known))
	check(*known.Batch.Results[0].Code == "teapot", "the batch: %+v", known.Batch)
	check(known.Changes.ChangeSets[0].Actor.Type == "agent", "the changes: %+v", known.Changes)
}

func deleteAndRestore(ctx context.Context, id int64) {
	_, _, err := client.ListingsAPI.DeleteListing(ctx, id).Execute()
	must(err)
	_, response, err := client.ListingsAPI.GetListing(ctx, id).Execute()
	expect(response, err, 404, listings.LISTING_NOT_FOUND)
	_, _, err = client.ListingsAPI.RestoreListing(ctx, id).Execute()
	must(err)
	check(!read(ctx, id).IsActive, "a restored listing is active")
}

func readErrors(id int64) {
	_, response, err := client.ListingsAPI.GetListing(withKey("wrong"), id).Execute()
	expect(response, err, 401, listings.INVALID_API_KEY)
	_, response, err = client.ListingsAPI.GetListing(withKey(os.Getenv("CHARLIE_KEY")), id).Execute()
	expect(response, err, 403, listings.PLAN_EXPIRED)
	bob := withKey(os.Getenv("BOB_KEY"))
	_, response, err = client.ListingsAPI.GetListing(bob, id).Execute()
	expect(response, err, 403, listings.NOT_OWNER)
	for range [100]int{} {
		if _, response, err = client.ListingsAPI.ListListings(bob).Execute(); err != nil {
			break
		}
	}
	expect(response, err, 429, listings.RATE_LIMITED)
}

// expect stops the program unless a call failed with this status and code, and a typed body.
func expect(response *http.Response, err error, status int, code listings.ErrorCode) {
	failure, ok := err.(*listings.GenericOpenAPIError)
	check(ok, "%v is no error of the API", err)
	body, ok := failure.Model().(listings.ErrorBody)
	check(ok && body.Error != "", "the body is %s", failure.Body())
	check(response.StatusCode == status, "the status is %d instead of %d", response.StatusCode, status)
	found := response.Header.Get("X-Error-Code")
	check(found == string(code), "the code is %s instead of %s", found, code)
}

func must(err error) {
	check(err == nil, "%v", err)
}

func check(holds bool, format string, values ...any) {
	if !holds {
		panic(fmt.Sprintf(format, values...))
	}
}
