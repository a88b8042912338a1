//! `cargo xtask house`: figures of the sources that reviews of the house ask for.
//!
//! Invariant: only product code counts: no tests, no comments, no blank lines. A line counts as code if a token of it
//! is neither documentation nor a test's. Deliberately not here: limits (`tests/tests/tidy`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use xtask::imports::{Graph, without_tests};

use crate::steps::root;

/// Where code lives, as for the house rules.
const FOLDERS: [&str; 7] = [
    "cli",
    "crates",
    "experiments",
    "node",
    "simnet",
    "tests",
    "xtask",
];

/// The crates whose hard functions need comments that say why.
const HARD: [&str; 5] = ["gossip", "site", "quota", "round", "usage"];

/// The figures of some files.
#[derive(Default)]
struct Figures {
    code: BTreeSet<(usize, usize)>,
    whys: usize,
    ofs: usize,
    docs: usize,
    short_docs: usize,
}

pub(crate) fn run() -> Result<(), String> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        add_files(&root().join(folder), &mut files);
    }
    let read = |file: &str| fs::read_to_string(root().join(file)).ok();
    let mut graph = Graph::default();
    graph.add_crates(&files, &read);
    let circles = graph.circles();
    let mut crates: BTreeMap<&str, Figures> = BTreeMap::new();
    let mut site = (0, 0, 0);
    for (number, file) in files.iter().enumerate() {
        let Some((name, inside)) = file.split_once("/src/") else {
            continue;
        };
        if inside.ends_with("tests.rs") || inside.split('/').any(|part| part == "tests") {
            continue;
        }
        let text = read(file).ok_or_else(|| format!("{file} is not UTF-8"))?;
        let tokens: TokenStream = text.parse().map_err(|error| format!("{file}: {error}"))?;
        crates.entry(name).or_default().add(number, &text, &tokens);
        if name == "crates/site" {
            count_site(tokens, &mut site).map_err(|error| format!("{file}: {error}"))?;
        }
    }
    println!(
        "{:20} {:>7} {:>8} {:>8} {:>8} {:>6} {:>11}",
        "crate", "code", "circles", "largest", "why/100", "`of`", "short docs"
    );
    let mut all = Figures::default();
    for (name, figures) in crates {
        let is_here = |folder: &str| folder.starts_with(&format!("{name}/"));
        let here = circles.iter().filter(|circle| is_here(&circle.folder));
        let sizes: Vec<usize> = here.map(|circle| circle.rooms.len()).collect();
        figures.print(name, &sizes);
        all.join(figures);
    }
    let sizes: Vec<usize> = circles.iter().map(|circle| circle.rooms.len()).collect();
    all.print("all", &sizes);
    let (fields, impls, methods) = site;
    println!("\n`Site`: {fields} fields, {impls} impls, {methods} methods");
    println!(
        "Docstrings: {}; short ones have three words or fewer",
        all.docs
    );
    Ok(())
}

impl Figures {
    fn add(&mut self, file: usize, text: &str, tokens: &TokenStream) {
        let mut every = BTreeSet::new();
        Figures::default().take(tokens.clone(), &mut every);
        let mut code = BTreeSet::new();
        self.take(without_tests(tokens.clone()), &mut code);
        // A comment belongs to the code that follows it.
        let mut was_comment = false;
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim_start();
            let is_doc = content.starts_with("///") || content.starts_with("//!");
            let is_comment = content.starts_with("//") && !is_doc;
            let follows = every.range(line..).next();
            if is_comment && !was_comment && follows.is_some_and(|line| code.contains(line)) {
                self.whys += 1;
            }
            was_comment = is_comment;
        }
        self.code.extend(code.into_iter().map(|line| (file, line)));
    }

    /// Counts tokens, and gives their lines.
    fn take(&mut self, tokens: TokenStream, lines: &mut BTreeSet<usize>) {
        let mut doc: Option<usize> = None;
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#') {
                tokens.next_if(
                    |next| matches!(next, TokenTree::Punct(punct) if punct.as_char() == '!'),
                );
                if let Some(words) = tokens.peek().and_then(doc_words) {
                    *doc.get_or_insert_default() += words;
                    tokens.next();
                    continue;
                }
            }
            if let Some(words) = doc.take() {
                self.docs += 1;
                self.short_docs += usize::from(words <= 3);
            }
            match token {
                TokenTree::Group(group) => {
                    lines.insert(group.span_open().start().line);
                    lines.insert(group.span_close().end().line);
                    self.take(group.stream(), lines);
                }
                token => {
                    self.ofs +=
                        usize::from(matches!(&token, TokenTree::Ident(name) if name == "of"));
                    lines.extend(token.span().start().line..=token.span().end().line);
                }
            }
        }
    }

    fn join(&mut self, other: Self) {
        self.code.extend(other.code);
        self.whys += other.whys;
        self.ofs += other.ofs;
        self.docs += other.docs;
        self.short_docs += other.short_docs;
    }

    fn print(&self, name: &str, circles: &[usize]) {
        let code = self.code.len();
        let hundredths = self.whys * 10_000 / code.max(1);
        let short = name.rsplit('/').next().unwrap_or(name);
        let whys = match HARD.contains(&short) || name == "all" {
            true => format!("{}.{:02}", hundredths / 100, hundredths % 100),
            false => String::new(),
        };
        let (count, largest) = (circles.len(), circles.iter().max().copied().unwrap_or(0));
        println!(
            "{name:20} {code:7} {count:8} {largest:8} {whys:>8} {:6} {:11}",
            self.ofs, self.short_docs
        );
    }
}

/// The words of a line of documentation.
fn doc_words(attribute: &TokenTree) -> Option<usize> {
    let TokenTree::Group(group) = attribute else {
        return None;
    };
    let mut tokens = group.stream().into_iter();
    let is_doc = matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == "doc");
    let text = tokens.nth(1).filter(|_| is_doc)?.to_string();
    Some(text.trim_matches('"').split_whitespace().count())
}

/// Adds fields, `impl` blocks and methods of `Site`.
fn count_site(tokens: TokenStream, counts: &mut (usize, usize, usize)) -> syn::Result<()> {
    let file: syn::File = syn::parse2(without_tests(tokens))?;
    for item in file.items {
        match item {
            syn::Item::Struct(item) if item.ident == "Site" => counts.0 += item.fields.len(),
            syn::Item::Impl(item) if is_site(&item.self_ty) => {
                let is_method = |item: &&syn::ImplItem| matches!(item, syn::ImplItem::Fn(_));
                counts.1 += 1;
                counts.2 += item.items.iter().filter(is_method).count();
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_site(of: &syn::Type) -> bool {
    matches!(of, syn::Type::Path(path) if path.path.is_ident("Site"))
}

/// Sources below a folder, by their paths from the root.
fn add_files(folder: &Path, files: &mut Vec<String>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        if path.is_dir() && !path.ends_with("target") {
            add_files(&path, files);
        } else if let Ok(name) = path.strip_prefix(root())
            && is_source
        {
            files.push(name.to_string_lossy().into_owned());
        }
    }
}
