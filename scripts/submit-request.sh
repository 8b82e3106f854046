#!/bin/sh
# Submit a signed erasure request with openssl and curl alone: RFC 9421 by hand.
#
#   submit-request.sh URL KEYID PRIVATE_PEM MODEL RECORD...
#   submit-request.sh URL KEYID PRIVATE_PEM MODEL --client NAME
#   submit-request.sh URL KEYID PRIVATE_PEM MODEL --subject NAME
#
# Before records that begin with -- write a -- of its own. REGULATION in the environment is the
# law that sets the deadline, gdpr or ccpa; METHOD names another method than the model's own.
#
# PRIVATE_PEM is an unencrypted Ed25519 or ECDSA P-256 key, its public half registered as
# KEYID. Prints the service's answer; exits with 0 if the request was accepted, 22 if the
# service refused it, 64 to 69 if it was never sent. IDEMPOTENCY_KEY in the environment
# repeats a submission without asking twice. Needs openssl 3 and curl 7.76.
set -eu
LC_ALL=C
export LC_ALL

fail() {
    printf 'submit-request: %s\n' "$2" >&2
    exit "$1"
}

usage='usage: submit-request.sh URL KEYID PRIVATE_PEM MODEL RECORD... | --client NAME | --subject NAME'
[ $# -ge 5 ] || fail 64 "$usage"
# Clients leave the default port out of Host, from which the service rebuilds the target URI.
url=$(printf '%s\n' "${1%/}/v1/requests" |
    sed 's#^\(http://[^/]*\):80/#\1/#; s#^\(https://[^/]*\):443/#\1/#')
keyid=$2 key=$3 model=$4
shift 4
level=sample
case $1 in
--client | --subject)
    [ $# -eq 2 ] || fail 64 "$usage"
    level=${1#--}
    shift
    ;;
--) shift && [ $# -ge 1 ] || fail 64 "$usage" ;;
--*) fail 64 "$usage" ;;
esac
case ${REGULATION-gdpr} in gdpr | ccpa) ;; *) fail 64 'REGULATION is gdpr or ccpa' ;; esac
case $url in
*[[:cntrl:][:space:]\"]*) fail 64 'URL has characters that no URL has' ;;
http://* | https://*) ;;
*) fail 64 'URL must begin with http:// or https://' ;;
esac
case $keyid in *[!A-Za-z0-9._:@-]*) fail 64 'KEYID has characters that no keyid has' ;; esac
case ${IDEMPOTENCY_KEY-} in
*[!A-Za-z0-9._:@-]*) fail 64 'IDEMPOTENCY_KEY: use letters, digits and . _ : @ - only' ;;
esac
for id in "$model" "${METHOD-}" "$@"; do
    # They would need \u escapes, and the service accepts none of them.
    case $id in *[[:cntrl:]]*) fail 65 'a model, method, record, client or subject holds a control character' ;; esac
done
[ -r "$key" ] || fail 66 'PRIVATE_PEM cannot be read'
for tool in openssl curl sed awk; do
    command -v "$tool" >/dev/null || fail 69 "$tool is not installed"
done
kind=$(openssl pkey -in "$key" -noout -text -passin pass: 2>/dev/null) ||
    fail 65 'PRIVATE_PEM is not an unencrypted private key'

umask 077 # the body names records
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

json_string() {
    printf '"%s"' "$(printf '%s\n' "$1" | sed 's/[\\"]/\\&/g')"
}

{
    printf '{"model":%s,"regulation":"%s",' "$(json_string "$model")" "${REGULATION-gdpr}"
    [ -z "${METHOD-}" ] || printf '"method":%s,' "$(json_string "$METHOD")"
    if [ "$level" = sample ]; then
        printf '"scope":{"level":"sample","records":['
        separator=''
        for record; do
            printf '%s%s' "$separator" "$(json_string "$record")"
            separator=,
        done
        printf ']}}'
    else
        printf '"scope":{"level":"%s","%s":%s}}' "$level" "$level" "$(json_string "$1")"
    fi
} >"$work/body"

# RFC 9530: the digest ties the body to the signature, which covers headers only.
digest="sha-256=:$(openssl dgst -sha256 -binary "$work/body" | openssl base64 -A):"
idempotency="\"${IDEMPOTENCY_KEY:-$(openssl rand -hex 16)}\""
created=$(date +%s)
parameters='("@method" "@target-uri" "content-type" "content-digest" "idempotency-key")'
parameters="$parameters;created=$created;expires=$((created + 300))"
parameters="$parameters;nonce=\"$(openssl rand -hex 16)\";keyid=\"$keyid\""
parameters="$parameters;tag=\"lethe-erasure\""

# RFC 9421 section 2.5: one line for each component, no line feed after the last.
printf '%s' "\"@method\": POST
\"@target-uri\": $url
\"content-type\": application/json
\"content-digest\": $digest
\"idempotency-key\": $idempotency
\"@signature-params\": $parameters" >"$work/base"

case $kind in
*ED25519*)
    openssl pkeyutl -sign -rawin -inkey "$key" -in "$work/base" -out "$work/signature"
    ;;
*prime256v1*)
    # openssl gives DER, RFC 9421 section 3.3.4 wants r || s of 32 bytes each.
    openssl dgst -sha256 -sign "$key" -out "$work/der" "$work/base"
    hex=$(openssl asn1parse -inform DER -in "$work/der" | sed -n 's/.*INTEGER *://p' |
        awk '{ while (length($0) < 64) $0 = "0" $0; printf "%s", $0 }')
    for octet in $(printf '%s\n' "$hex" | sed 's/../0x& /g'); do
        printf "\\$(printf '%03o' "$octet")"
    done >"$work/signature"
    ;;
*) fail 65 'PRIVATE_PEM is neither an Ed25519 nor an ECDSA P-256 key' ;;
esac

curl --silent --show-error --fail-with-body --request POST \
    --header 'Content-Type: application/json' \
    --header "Content-Digest: $digest" \
    --header "Idempotency-Key: $idempotency" \
    --header "Signature-Input: sig1=$parameters" \
    --header "Signature: sig1=:$(openssl base64 -A -in "$work/signature"):" \
    --data-binary "@$work/body" "$url"
