//! The program. Everything it does is in the library, where tests can reach it.

fn main() -> std::process::ExitCode {
    fairmesh::cli::main()
}
