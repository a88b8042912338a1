//! The graph of imports between the rooms of a crate: a room is a module with all that is below it.
//!
//! A file imports another one where a path in its code leads there: in a `use`, an expression, a type, an attribute or
//! the arguments of a macro. A path leads to the module that defines what it names: a re-export is not the end of it.
//! An import counts between the two rooms that the paths of the files part at, side by side in one module. What goes
//! on between a module and its own children does not count: they are one room, seen from outside.
//!
//! Deliberately not here: tests, links in documentation, paths that a macro puts together, names from a glob.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// The absolute path of a module inside its crate: empty for the root.
type ModulePath = Vec<String>;

/// Where a file imports another one.
#[derive(Debug)]
pub struct Import {
    /// The importing file, from the root of the repository.
    pub file: String,
    /// Line number in the file, from 1.
    pub line: usize,
    /// The path as it is written.
    pub path: String,
}

/// Rooms side by side, each with those that it imports and where it does so first.
type Rooms = BTreeMap<String, BTreeMap<String, Import>>;

/// Rooms of one folder that import each other, directly or not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Circle {
    /// From the root of the repository.
    pub folder: String,
    /// The rooms of the circle, at least two.
    pub rooms: BTreeSet<String>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rooms: Vec<_> = self.rooms.iter().map(String::as_str).collect();
        write!(f, "{}: {}", self.folder, rooms.join(" "))
    }
}

/// The rooms of each folder.
#[derive(Debug, Default)]
pub struct Graph(BTreeMap<String, Rooms>);

impl Graph {
    /// Adds every crate that has a root file among these. `read` is that of [`Graph::add_crate`].
    pub fn add_crates<'a>(
        &mut self,
        files: impl IntoIterator<Item = &'a String>,
        read: &impl Fn(&str) -> Option<String>,
    ) {
        for file in files {
            let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
            let is_program = folder.ends_with("src/bin") && file.ends_with(".rs");
            if is_program || file.ends_with("src/lib.rs") || file.ends_with("src/main.rs") {
                self.add_crate(file, read);
            }
        }
    }

    /// Adds the crate with this root file. `read` gives the text of a file, or `None` if there is no such file.
    pub fn add_crate(&mut self, root: &str, read: &impl Fn(&str) -> Option<String>) {
        let mut modules = Modules::default();
        let (folder, _) = root.rsplit_once('/').expect("a root file is in a folder");
        modules.add_file(root, folder, Vec::new(), read);
        for (module, items) in &modules.items {
            let mut importer = Importer {
                modules: &modules,
                module,
                imports: Vec::new(),
            };
            for item in items {
                importer.visit_item(item);
            }
            for (to, import) in importer.imports {
                self.add(folder, module, &to, import);
            }
        }
    }

    fn add(&mut self, folder: &str, from: &[String], to: &[String], import: Import) {
        let common = from
            .iter()
            .zip(to)
            .take_while(|(from, to)| from == to)
            .count();
        let folder = [&[folder.to_owned()], &from[..common]].concat().join("/");
        if let (Some(from), Some(to)) = (from.get(common), to.get(common)) {
            let rooms = self.0.entry(folder).or_default();
            rooms.entry(to.clone()).or_default();
            let imports = rooms.entry(from.clone()).or_default();
            imports.entry(to.clone()).or_insert(import);
        }
    }

    /// Every import: the folder, the importing and the imported room.
    pub fn imports(&self) -> impl Iterator<Item = (&str, &str, &str, &Import)> {
        self.0.iter().flat_map(|(folder, rooms)| {
            rooms.iter().flat_map(move |(from, imports)| {
                let imports = imports.iter();
                imports
                    .map(move |(to, import)| (folder.as_str(), from.as_str(), to.as_str(), import))
            })
        })
    }

    /// Every circle: each has at least two rooms.
    pub fn circles(&self) -> BTreeSet<Circle> {
        let mut circles = BTreeSet::new();
        for (folder, rooms) in &self.0 {
            let reached = rooms.keys().map(|room| (room, chain_lengths(rooms, room)));
            let reached: BTreeMap<_, _> = reached.collect();
            for room in rooms.keys() {
                let circle = reached[room]
                    .keys()
                    .filter(|to| reached[**to].contains_key(room));
                circles.insert(Circle {
                    folder: folder.clone(),
                    rooms: circle.map(|to| (*to).clone()).collect(),
                });
            }
        }
        circles.retain(|circle| circle.rooms.len() > 1);
        circles
    }

    /// The shortest way around a circle through an import that `counts`.
    pub fn shortest_chain(
        &self,
        circle: &Circle,
        counts: impl Fn(&str, &str) -> bool,
    ) -> Vec<&Import> {
        let rooms = &self.0[&circle.folder];
        let edges = circle
            .rooms
            .iter()
            .flat_map(|from| rooms[from].keys().map(move |to| (from, to)));
        let edges = edges.filter(|(from, to)| circle.rooms.contains(*to) && counts(from, to));
        let length_back = |from: &String, to: &String| chain_lengths(rooms, from).get(to).copied();
        let Some((first, next)) = edges.min_by_key(|(from, to)| length_back(to, from)) else {
            return Vec::new();
        };
        let mut chain = vec![&rooms[first][next]];
        let mut at = next;
        while at != first {
            let nearer = |to: &&String| length_back(to, first).unwrap_or(usize::MAX);
            let next = rooms[at].keys().min_by_key(nearer);
            let next = next.expect("a room of a circle imports another one");
            chain.push(&rooms[at][next]);
            at = next;
        }
        chain
    }
}

/// How many imports lead from a room to each one that it depends on: none to itself.
fn chain_lengths<'a>(rooms: &'a Rooms, from: &'a String) -> BTreeMap<&'a String, usize> {
    let mut lengths = BTreeMap::from([(from, 0)]);
    let mut pending = VecDeque::from([from]);
    while let Some(room) = pending.pop_front() {
        let length = lengths[room] + 1;
        for to in rooms[room].keys() {
            lengths.entry(to).or_insert_with(|| {
                pending.push_back(to);
                length
            });
        }
    }
    lengths
}

/// The modules of one crate.
#[derive(Default)]
struct Modules {
    files: BTreeMap<ModulePath, String>,
    items: BTreeMap<ModulePath, Vec<syn::Item>>,
    /// What a `use` brings into the scope of a module: the path as written, by the name there.
    names: BTreeMap<ModulePath, BTreeMap<String, Vec<String>>>,
}

impl Modules {
    /// `folder` is where the files of the module's children are.
    fn add_file(
        &mut self,
        file: &str,
        folder: &str,
        module: ModulePath,
        read: &impl Fn(&str) -> Option<String>,
    ) {
        let text = read(file).unwrap_or_else(|| panic!("{file} is not there"));
        let tokens = text.parse().map(without_tests);
        let tokens = tokens.unwrap_or_else(|error| panic!("{file}: {error}"));
        let parsed: syn::File = syn::parse2(tokens).unwrap_or_else(|error| {
            panic!("{file}:{}: {error}", error.span().start().line);
        });
        self.add_items(file, folder, module, parsed.items, read);
    }

    fn add_items(
        &mut self,
        file: &str,
        folder: &str,
        module: ModulePath,
        items: Vec<syn::Item>,
        read: &impl Fn(&str) -> Option<String>,
    ) {
        let (children, items): (Vec<_>, Vec<_>) = items
            .into_iter()
            .partition(|item| matches!(item, syn::Item::Mod(_)));
        self.files.insert(module.clone(), file.to_owned());
        for child in children {
            let syn::Item::Mod(child) = child else {
                continue;
            };
            let name = child.ident.to_string();
            let folder = format!("{folder}/{name}");
            let path = [module.as_slice(), &[name]].concat();
            if let Some((_, items)) = child.content {
                self.add_items(file, &folder, path, items, read);
            } else {
                let beside = format!("{folder}.rs");
                let is_beside = read(&beside).is_some();
                let file = if is_beside {
                    beside
                } else {
                    format!("{folder}/mod.rs")
                };
                self.add_file(&file, &folder, path, read);
            }
        }
        let uses = items.iter().filter_map(|item| match item {
            syn::Item::Use(item) => Some(imported_names(item)),
            _ => None,
        });
        let names = uses.flatten().map(|import| (import.name, import.path));
        self.names.insert(module.clone(), names.collect());
        self.items.insert(module, items);
    }

    /// Where a path in this module leads, unless it leads out of the crate.
    fn leads_to(&self, from: &ModulePath, path: &[String]) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Target::Module(Vec::new()),
            "self" => Target::Module(from.clone()),
            "super" => Target::Module(parent(from)),
            name => self.step(from, name)?,
        };
        while let (Target::Module(module), Some((name, after))) = (&at, rest.split_first()) {
            at = match name.as_str() {
                "super" => Target::Module(parent(module)),
                name => {
                    let found = self.step(module, name);
                    found.unwrap_or_else(|| Target::ItemOf(module.clone()))
                }
            };
            rest = after;
        }
        Some(at)
    }

    /// Where a name in the scope of a module leads: to a child, or where a `use` found it.
    fn step(&self, module: &ModulePath, name: &str) -> Option<Target> {
        let child = [module.as_slice(), &[name.to_owned()]].concat();
        if self.files.contains_key(&child) {
            return Some(Target::Module(child));
        }
        let path = self.names[module].get(name)?;
        // `use other::other` finds a crate.
        let is_itself = path.first().is_some_and(|first| first == name);
        (!is_itself).then(|| self.leads_to(module, path))?
    }
}

/// What a path leads to.
enum Target {
    Module(ModulePath),
    /// Something that the module defines: what follows in the path belongs to it.
    ItemOf(ModulePath),
}

fn parent(module: &ModulePath) -> ModulePath {
    let (_, parent) = module.split_last().expect("the root has no parent");
    parent.to_vec()
}

/// A name that a `use` brings into scope.
struct ImportedName {
    name: String,
    path: Vec<String>,
    line: usize,
}

fn imported_names(item: &syn::ItemUse) -> Vec<ImportedName> {
    let mut names = Vec::new();
    if item.leading_colon.is_none() {
        add_names(&mut names, &[], &item.tree);
    }
    names
}

fn add_names(names: &mut Vec<ImportedName>, prefix: &[String], tree: &syn::UseTree) {
    let (ident, name) = match tree {
        syn::UseTree::Path(path) => {
            let prefix = [prefix, &[path.ident.to_string()]].concat();
            return add_names(names, &prefix, &path.tree);
        }
        syn::UseTree::Group(group) => {
            return (group.items.iter()).for_each(|tree| add_names(names, prefix, tree));
        }
        syn::UseTree::Name(name) => (&name.ident, &name.ident),
        syn::UseTree::Rename(rename) => (&rename.ident, &rename.rename),
        syn::UseTree::Glob(glob) => {
            let line = glob.star_token.span.start().line;
            let (name, path) = ("*".to_owned(), prefix.to_vec());
            return names.push(ImportedName { name, path, line });
        }
    };
    // `use a::{self}` is `use a`.
    let (path, name) = match prefix.last() {
        Some(module) if ident == "self" && name == "self" => (prefix.to_vec(), module.clone()),
        _ if ident == "self" => (prefix.to_vec(), name.to_string()),
        _ => ([prefix, &[ident.to_string()]].concat(), name.to_string()),
    };
    let line = ident.span().start().line;
    names.push(ImportedName { name, path, line });
}

/// Leaves out every item behind `#[cfg(test)]`, to the brace or semicolon that ends it.
pub fn without_tests(tokens: TokenStream) -> TokenStream {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if let TokenTree::Group(attribute) = &token
            && is_cfg_test(attribute)
            && is_punct(kept.last(), '#')
        {
            kept.pop();
            let ends = |token: &TokenTree| is_block(token) || is_punct(Some(token), ';');
            tokens.find(ends);
            tokens.next_if(|token| is_punct(Some(token), ';') || is_punct(Some(token), ','));
            continue;
        }
        kept.push(match token {
            TokenTree::Group(group) => {
                let inner = without_tests(group.stream());
                let mut group_kept = Group::new(group.delimiter(), inner);
                group_kept.set_span(group.span());
                group_kept.into()
            }
            token => token,
        });
    }
    kept.into_iter().collect()
}

fn is_cfg_test(attribute: &Group) -> bool {
    let text = attribute.stream().to_string().replace(' ', "");
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

fn is_block(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

/// Collects the imports of one module.
struct Importer<'a> {
    modules: &'a Modules,
    module: &'a ModulePath,
    imports: Vec<(ModulePath, Import)>,
}

impl Importer<'_> {
    /// Notes where a path leads, unless it leads out of the crate.
    fn import(&mut self, path: &[String], line: usize) {
        if let Some(target) = self.modules.leads_to(self.module, path) {
            let (Target::Module(module) | Target::ItemOf(module)) = target;
            let file = self.modules.files[self.module].clone();
            let path = path.join("::");
            self.imports.push((module, Import { file, line, path }));
        }
    }

    /// Paths in what only a macro understands; in an attribute they can be strings (`#[serde(with = "…")]`).
    fn import_tokens(&mut self, tokens: TokenStream, is_attribute: bool) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(ident) => {
                    path.push(ident.to_string());
                    line = ident.span().start().line;
                }
                TokenTree::Group(group) => self.import_tokens(group.stream(), is_attribute),
                TokenTree::Literal(literal) if is_attribute => {
                    let text = literal.to_string();
                    let path: Vec<_> = text.trim_matches('"').split("::").collect();
                    self.import_code(
                        &path.into_iter().map(str::to_owned).collect::<Vec<_>>(),
                        literal.span().start().line,
                    );
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            let is_joint = |token: &TokenTree| {
                matches!(token, TokenTree::Punct(colon)
                    if colon.as_char() == ':' && colon.spacing() == Spacing::Joint)
            };
            if tokens.next_if(is_joint).is_some() {
                tokens.next();
                // What begins with colons is a path out of the crate.
                if path.is_empty() {
                    tokens.next();
                }
            } else {
                self.import_code(&path, line);
                path.clear();
            }
        }
    }

    /// A path in code: a name alone is no import, its `use` is.
    fn import_code(&mut self, path: &[String], line: usize) {
        if path.len() > 1 {
            self.import(path, line);
        }
    }
}

impl<'ast> Visit<'ast> for Importer<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for name in imported_names(item) {
            self.import(&name.path, name.line);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|part| part.ident.to_string());
        let line = path.segments[0].ident.span().start().line;
        if path.leading_colon.is_none() {
            self.import_code(&names.collect::<Vec<_>>(), line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.import_tokens(call.tokens.clone(), false);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.import_tokens(list.tokens.clone(), true);
        }
    }

    /// `pub(in crate::a)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}
