"""The Ray Serve application: builder, ingress, detector, wire format, limits."""
