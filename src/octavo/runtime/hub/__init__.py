"""A folder that others' tools open as it is: its layout, its model card, and the way to the hub."""
