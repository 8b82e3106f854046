"""What a certificate says of a masked round's sum in words."""

from workers.families.ridge.wording import UNSEEN

SEEN = (
    f"{UNSEEN} The statistics are bit-equal to those before plus the unmasked sum of a round "
    "in which the clients that hold the records released them, recomputed from their signed "
    "messages"
)
