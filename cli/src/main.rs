//! The program. Everything it does is in the library, where tests can reach it.

// `cargo build --release --workspace --features simnet/mutants` must not leave such a node behind.
const _: () = assert!(
    !fairmesh_model::mutant::CAN_BE_PLANTED || cfg!(debug_assertions),
    "faults can be planted in this build: build the node without the feature `mutants`"
);

fn main() -> std::process::ExitCode {
    fairmesh::cli::main()
}
