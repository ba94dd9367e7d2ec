"""From a captured graph to an ONNX model.

`context` holds a translation under way (the graph being written, the value of every node so far) and is what
`operations`, `weights`, `grids` and `masks` import; `walk` visits the nodes and imports those; `model` puts
inputs, outputs and metadata around the result.
"""
