//! The very program, under a name that tests of this package can ask cargo for.

fn main() -> std::process::ExitCode {
    fairmesh::cli::main()
}
