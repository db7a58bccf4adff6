"""What runs beside workers: promoter, rescuer, collector, guards and recovery."""
