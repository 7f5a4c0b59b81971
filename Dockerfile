# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
# The dependencies alone, in a layer that a change to the sources does not touch.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src benches \
    && touch src/lib.rs \
    && echo 'fn main() {}' >src/main.rs \
    && cp src/main.rs build.rs \
    && cp src/main.rs benches/intake.rs \
    && cargo build --release --locked
COPY . .
# Sources may be older than the stand-ins above, and cargo goes by the time.
RUN touch build.rs src/lib.rs src/main.rs \
    && cargo build --release --locked

# glibc, CA certificates and an account that is not root; no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/payonce /usr/local/bin/payonce
ENV PAYONCE__HTTP__LISTEN=0.0.0.0:8080 PAYONCE__ADMIN__LISTEN=0.0.0.0:9090
# The second is for Prometheus: not to be published.
EXPOSE 8080 9090
# Asks /readyz, of whatever roles the process is.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["payonce", "healthcheck"]
ENTRYPOINT ["payonce"]
CMD ["serve"]
