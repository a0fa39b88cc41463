-- How buyers reach the seller, as shown on the market: an email address, a phone number or a URL.
ALTER TABLE accounts ADD COLUMN public_contact TEXT NOT NULL DEFAULT '';
