"""Sites: data flow, blocks and roles of a captured graph, and the tensors worth a quantizer."""
