"""Every error Detserve raises on purpose, as one tree.

Why one module: the ingress turns any of them into an HTTP answer in a single place, and a
command line prints any of them as one sentence. Each class carries the machine-readable `code`
and the HTTP `status` a caller sees; the sentence never repeats what the caller sent.

    DetserveError
    ├── RequestError              the caller's request (4xx: clients must not retry it)
    │   ├── MalformedRequest          400  not JSON, or a header that breaks the rules
    │   ├── InvalidRequest            422  JSON, but not a request for detections
    │   ├── UnknownModel              404
    │   ├── UnknownPath               404
    │   ├── MethodNotAllowed          405
    │   ├── BodyTooLarge              413
    │   └── ImageError                422  one of the images
    │       ├── UnsupportedImage      415  not a JPEG or PNG by content
    │       ├── DamagedImage          422  truncated, or a broken stream
    │       └── ImageTooLarge         422  more pixels than the server decodes
    ├── ServiceError              the server (5xx and 429: clients retry with a pause)
    │   ├── Overloaded                429
    │   ├── ModelUnavailable          503
    │   ├── DeadlineExceeded          504
    │   └── DetectionFailed           500
    ├── CatalogueError            a checkpoint's YAML file
    ├── ConfigError               serve_config.yaml
    ├── SourceError               fetching a checkpoint's published files
    │   └── SourceMismatch            a file whose sha256 is not the pinned one
    ├── BundleError               building or opening a bundle
    │   ├── BundleMismatch            a bundle that is not what its identity says
    │   └── BundleUnqualified         a bundle that is not proved as far as its model requires
    └── QualificationError        a campaign that could not run (a failed gate is a result)
"""


class DetserveError(Exception):
    """Base of the tree. `str(error)` is one sentence for a person."""

    code = "internal_error"
    status = 500


class RequestError(DetserveError):
    """A refused request; `index` is the place in its `input` that is at fault, if one is."""

    code = "invalid_request"
    status = 400
    index: int | None = None


class MalformedRequest(RequestError):
    code = "malformed_request"


class InvalidRequest(RequestError):
    status = 422


class UnknownModel(RequestError):
    code = "unknown_model"
    status = 404


class UnknownPath(RequestError):
    code = "unknown_path"
    status = 404


class MethodNotAllowed(RequestError):
    """`allow` is the method that the path takes."""

    code = "method_not_allowed"
    status = 405

    def __init__(self, allow: str) -> None:
        super().__init__(f"this path takes {allow}")
        self.allow = allow


class BodyTooLarge(RequestError):
    code = "body_too_large"
    status = 413


class ImageError(RequestError):
    code = "invalid_image"
    status = 422


class UnsupportedImage(ImageError):
    code = "unsupported_image_type"
    status = 415


class DamagedImage(ImageError):
    code = "damaged_image"


class ImageTooLarge(ImageError):
    code = "image_too_large"


class ServiceError(DetserveError):
    code = "service_error"


class Overloaded(ServiceError):
    code = "overloaded"
    status = 429


class ModelUnavailable(ServiceError):
    code = "model_unavailable"
    status = 503


class DeadlineExceeded(ServiceError):
    code = "deadline_exceeded"
    status = 504


class DetectionFailed(ServiceError):
    code = "detection_failed"


class CatalogueError(DetserveError):
    code = "catalogue_error"


class ConfigError(DetserveError):
    code = "config_error"


class SourceError(DetserveError):
    code = "source_error"


class SourceMismatch(SourceError):
    code = "source_mismatch"


class BundleError(DetserveError):
    code = "bundle_error"


class BundleMismatch(BundleError):
    code = "bundle_mismatch"


class BundleUnqualified(BundleError):
    code = "bundle_unqualified"


class QualificationError(DetserveError):
    code = "qualification_error"
