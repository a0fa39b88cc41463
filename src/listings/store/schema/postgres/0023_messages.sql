-- When the seller turned off messages of buyers; NULL if buyers can write.
ALTER TABLE accounts ADD COLUMN messages_off_at bigint;
