// One life cycle with the client that openapi-generator makes for Java, over java.net.http.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import listings.ApiClient;
import listings.ApiException;
import listings.ApiResponse;
import listings.api.ListingsApi;
import listings.model.*;

public class Main {
    private static final ListingsApi alice = connect(System.getenv("ALICE_KEY"));

    interface Call {
        void run() throws ApiException;
    }

    public static void main(String[] arguments) throws Exception {
        long id = create("Rimu table", 249999.99);
        Listing listing = read(id).getData();
        check(listing.getPrice() == 249999.99, "the price is " + listing.getPrice());
        check(listing.getPriceType() == PriceType.NEGOTIABLE, "the price type is " + listing.getPriceType());
        listByPages();
        updateOneField(id);
        replay();
        runBatch(id);
        deleteAndRestore(id);
        readErrors(id);
        decodeUnknownValues();
        System.out.println("java: the life cycle is complete");
    }

    static ListingsApi connect(String key) {
        ApiClient client = new ApiClient();
        client.updateBaseUri(System.getenv("LISTINGS_URL"));
        client.setRequestInterceptor(request -> request.header("X-API-Key", key));
        return new ListingsApi(client);
    }

    static long create(String title, double price) throws ApiException {
        ListingCreate listing = new ListingCreate().title(title).content("Solid heart rimu.").price(price);
        return alice.createListing(listing.priceType(PriceType.NEGOTIABLE), null, null, null, null).getId();
    }

    static ApiResponse<Listing> read(long id) throws ApiException {
        return alice.getListingWithHttpInfo(id, null, null, null, null, null);
    }

    static void listByPages() throws ApiException {
        create("Road bike", 950);
        create("Guitar", 300);
        Set<Long> found = new HashSet<>();
        String cursor = null;
        do {
            ApiResponse<Listings> page = alice.listListingsWithHttpInfo(
                    2, cursor, null, null, null, null, null, null, null, null, null, null, SortOrder.ID, null, null, null, null,
                    null);
            page.getData().getListings().forEach(listing -> found.add(listing.getId()));
            cursor = page.getHeaders().getOrDefault("x-next-cursor", List.of()).stream().findFirst().orElse(null);
        } while (cursor != null);
        check(found.size() == 3, found.size() + " listings on all pages");
    }

    static void updateOneField(long id) throws Exception {
        ApiResponse<Listing> before = read(id);
        String tag = before.getHeaders().get("etag").get(0);
        ListingUpdate change = new ListingUpdate().price(1100.5);
        alice.updateListing(id, change, null, null, tag, null, null, null);
        Listing after = read(id).getData();
        Listing expected = before.getData().price(1100.5).updatedAt(after.getUpdatedAt());
        check(after.equals(expected), "another field moved: " + after);
        expect(412, ErrorCode.PRECONDITION_FAILED, () -> alice.updateListing(id, change, null, null, tag, null, null, null));
    }

    static void replay() throws ApiException {
        ListingCreate lamp = new ListingCreate().title("Lamp").content("Brass.");
        ApiResponse<Created> first = alice.createListingWithHttpInfo(lamp, null, "lamp-1", null, null);
        ApiResponse<Created> second = alice.createListingWithHttpInfo(lamp, null, "lamp-1", null, null);
        check(first.getData().equals(second.getData()), "another listing was created");
        check(second.getHeaders().containsKey("idempotent-replayed"), "the create was not replayed");
    }

    static void runBatch(long id) throws ApiException {
        CreateOperation create = new CreateOperation().op(CreateOperation.OpEnum.CREATE).ref("chair")
                .listing(new ListingCreate().title("Chair").content("Oak."));
        UpdateOperation update = new UpdateOperation().op(UpdateOperation.OpEnum.UPDATE).id(id)
                .changes(new ListingUpdate().region("Otago"));
        DeleteOperation delete = new DeleteOperation().op(DeleteOperation.OpEnum.DELETE).id(1L);
        PutOperation put = new PutOperation().op(PutOperation.OpEnum.PUT)
                .listing(new ListingPut().externalId("stool").title("Stool").content("Oak."));
        Batch batch = new Batch().operations(List.of(
                new BatchOperation(create), new BatchOperation(update), new BatchOperation(delete),
                new BatchOperation(put), new BatchOperation(put)));
        List<BatchResult> results = alice.runBatch(batch, null, null, null, null, null, null).getResults();
        BatchResult made = results.get(0), failed = results.get(2), first = results.get(3), second = results.get(4);
        check(made.getBody().getId() > 0 && made.getRef().equals("chair"), "the create: " + made);
        check(results.get(1).getBody().getMessage().equals("listing updated"), "the update: " + results.get(1));
        check(failed.getCode().equals("listing_not_found") && failed.getBody().getError() != null, "the delete: " + failed);
        check(first.getOp().equals("create") && second.getOp().equals("update")
                && first.getId().equals(second.getId()), "the puts: " + first + second);
        BatchResult planned = alice.runBatch(batch, true, null, null, null, null, null).getResults().get(0);
        check(planned.getBody().getMessage().equals("listing would be created"), "the dry run: " + planned);
        ListingCreate shelf = new ListingCreate().title("Shelf").content("Oak.");
        Created whole = alice.createListing(shelf, "return=representation", null, null, null);
        check(whole.getAdditionalProperty("title").equals("Shelf"), "the representation: " + whole);
    }

    /** Read codes, actors and kinds that a later version of the service may add. */
    static void decodeUnknownValues() throws Exception {
        ObjectMapper mapper = new ApiClient().getObjectMapper();
        JsonNode known = mapper.readTree(new File(System.getenv("UNKNOWN_VALUES")));
        BatchResults batch = mapper.treeToValue(known.get("batch"), BatchResults.class);
        check(batch.getResults().get(0).getCode().equals("teapot"), "the batch: " + batch);
        ChangeSets changes = mapper.treeToValue(known.get("changes"), ChangeSets.class);
        check(changes.getChangeSets().get(0).getActor().getType().equals("agent"), "the changes: " + changes);
    }

    static void deleteAndRestore(long id) throws Exception {
        alice.deleteListing(id, null, null, null, null, null, null);
        expect(404, ErrorCode.LISTING_NOT_FOUND, () -> read(id));
        alice.restoreListing(id, null, null, null, null, null, null);
        check(!read(id).getData().getIsActive(), "a restored listing is active");
    }

    static void readErrors(long id) throws Exception {
        ListingsApi bob = connect(System.getenv("BOB_KEY"));
        ListingsApi charlie = connect(System.getenv("CHARLIE_KEY"));
        expect(401, ErrorCode.INVALID_API_KEY, () -> connect("wrong").getListing(id, null, null, null, null, null));
        expect(403, ErrorCode.PLAN_EXPIRED, () -> charlie.getListing(id, null, null, null, null, null));
        expect(403, ErrorCode.NOT_OWNER, () -> bob.getListing(id, null, null, null, null, null));
        expect(429, ErrorCode.RATE_LIMITED, () -> {
            for (int count = 0; count < 100; count++) {
                bob.listListings(
                        null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
                        null, null);
            }
        });
    }

    /** Check that a call fails with this status and code, and a typed body. */
    static void expect(int status, ErrorCode code, Call call) throws Exception {
        try {
            call.run();
        } catch (ApiException error) {
            ErrorBody body = new ApiClient().getObjectMapper().readValue(error.getResponseBody(), ErrorBody.class);
            check(!body.getError().isEmpty(), "the body is " + body);
            check(error.getCode() == status, "the status is " + error.getCode() + " instead of " + status);
            String found = error.getResponseHeaders().firstValue("X-Error-Code").orElse("");
            check(ErrorCode.fromValue(found) == code, "the code is " + found + " instead of " + code);
            return;
        }
        throw new AssertionError("no error with status " + status);
    }

    static void check(boolean holds, String message) {
        if (!holds) {
            throw new AssertionError(message);
        }
    }
}
