#!/bin/sh
# Writes keys for a trial on one machine: ca.crt, server.crt and server.key for localhost, and a
# key pair NODE, NODE.pub for each name. In production your own CA signs the server's
# certificate, and each client makes its own key and hands over only the public half.
#
#   flower/trial-keys.sh DIRECTORY NODE...
set -eu
umask 077
mkdir -p "$1"
cd "$1"
shift

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
    -subj "/CN=Lethe trial CA" -keyout ca.key -out ca.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -subj "/CN=localhost" -keyout server.key -out server.csr
echo "subjectAltName=DNS:localhost,IP:127.0.0.1" >server.ext
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
    -extfile server.ext -out server.crt

for node in "$@"; do
    ssh-keygen -q -t ecdsa -b 384 -N "" -C "$node" -f "$node" # Flower takes NIST curves only
done
