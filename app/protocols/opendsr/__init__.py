"""OpenDSR 2.0: requests of controllers, answered under the processor's certificate."""
