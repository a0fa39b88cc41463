-- The names of the changed columns are separated by commas: 4 bytes less per edit than a JSON array.
UPDATE changes SET fields = replace(replace(replace(fields, '["', ''), '"]', ''), '","', ',') WHERE fields <> '';
