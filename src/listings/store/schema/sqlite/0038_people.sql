-- What a seller writes about the shop, for buyers.
ALTER TABLE accounts ADD COLUMN about TEXT NOT NULL DEFAULT '';

-- The last day on which a buyer viewed the listing (YYYY-MM-DD, UTC), or NULL.
ALTER TABLE listings ADD COLUMN last_viewed_on TEXT;

-- Why a request was rejected, without the values that it contained.
ALTER TABLE refusals ADD COLUMN reason TEXT NOT NULL DEFAULT '';

-- The id of the provider's invoice, if there is one.
ALTER TABLE payments ADD COLUMN invoice TEXT NOT NULL DEFAULT '';
CREATE INDEX payments_account ON payments (account_id, received_at, payment_id);
