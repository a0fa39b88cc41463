-- The market shows a listing in one of the sixteen regions if its region names one: index those that may be changed.
UPDATE listings SET market_version = 0 WHERE region NOT IN (
    '', 'Northland', 'Auckland', 'Waikato', 'Bay of Plenty', 'Gisborne', 'Hawke''s Bay', 'Taranaki',
    'Manawatū-Whanganui', 'Wellington', 'Tasman', 'Nelson', 'Marlborough', 'West Coast', 'Canterbury', 'Otago',
    'Southland');
