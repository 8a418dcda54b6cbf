"""What a cycle does, one file an action; their order is `controller.scheduler.cycle.ACTIONS`."""
