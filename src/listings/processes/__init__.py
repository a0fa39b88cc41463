"""Many processes of the service on one machine: who starts and replaces them, and sums what they count."""
