"""The service on several processes and on PostgreSQL: what each gives, beside what it is compared with."""
