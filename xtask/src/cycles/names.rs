//! Resolution of the paths in a file to the files they name.

use std::collections::{HashMap, HashSet};

use syn::visit::Visit;

use super::modules::{Crate, Module, ModulePath};

/// For each file the files that it names.
pub fn arrows(parsed: &Crate) -> Vec<HashSet<usize>> {
    let passed_on: Vec<_> = parsed.files.iter().map(names_passed_on).collect();
    let arrow = |(index, module): (usize, &Module)| {
        let mut named = Named::new(&module.path);
        named.visit_file(&module.syntax);
        let found = named
            .paths
            .iter()
            .filter_map(|path| resolve(parsed, &passed_on, path));
        found.filter(|file| *file != index).collect()
    };
    parsed.files.iter().enumerate().map(arrow).collect()
}

/// The names that a module takes from others by `use`, with where they come from.
fn names_passed_on(module: &Module) -> HashMap<String, ModulePath> {
    let mut names = HashMap::new();
    for item in &module.syntax.items {
        if let syn::Item::Use(item) = item {
            let mut leaves = Vec::new();
            flatten(&item.tree, &mut Vec::new(), &mut leaves);
            for (path, name) in leaves {
                if let Some(absolute) = absolute(&module.path, &path, true) {
                    names.insert(name, absolute);
                }
            }
        }
    }
    names
}

/// The file that defines `path`, followed through at most eight facades.
fn resolve(
    parsed: &Crate,
    passed_on: &[HashMap<String, ModulePath>],
    path: &[String],
) -> Option<usize> {
    let mut path = path.to_vec();
    for _ in 0..8 {
        let (file, len) = (0..=path.len())
            .rev()
            .find_map(|len| Some((parsed.find(&path[..len])?, len)))?;
        let next = path.get(len).and_then(|name| passed_on[file].get(name));
        match next {
            Some(origin) if *origin != path[..=len] => {
                let mut origin = origin.clone();
                origin.extend_from_slice(&path[len + 1..]);
                path = origin;
            }
            _ => return Some(file),
        }
    }
    None
}

struct Named<'a> {
    module: &'a ModulePath,
    paths: Vec<ModulePath>,
}

impl Named<'_> {
    fn new(module: &ModulePath) -> Named<'_> {
        let paths = Vec::new();
        Named { module, paths }
    }

    fn add(&mut self, path: &[String], is_use: bool) {
        self.paths.extend(absolute(self.module, path, is_use));
    }
}

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A re-export of a facade is no arrow: the user of the name points at its origin.
        if !matches!(item.vis, syn::Visibility::Inherited) {
            return;
        }
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut leaves);
        for (path, _) in leaves {
            self.add(&path, true);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        self.add(&parts, false);
        syn::visit::visit_path(self, path);
    }

    // `pub(super)` restricts the users of an item; it is no use by the file.
    fn visit_vis_restricted(&mut self, _restricted: &'ast syn::VisRestricted) {}

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !item.attrs.iter().any(is_cfg_test) {
            syn::visit::visit_item_mod(self, item);
        }
    }
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<syn::Path>()
            .is_ok_and(|path| path.is_ident("test"))
}

/// Returns all names of a `use`: their paths, and their names here.
fn flatten(tree: &syn::UseTree, prefix: &mut ModulePath, leaves: &mut Vec<(ModulePath, String)>) {
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, leaves);
            prefix.pop();
        }
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, leaves);
            }
        }
        syn::UseTree::Name(name) if name.ident == "self" => {
            let own = prefix.last().cloned().unwrap_or_default();
            leaves.push((prefix.clone(), own));
        }
        syn::UseTree::Name(name) => leaves.push(leaf(prefix, &name.ident, &name.ident)),
        syn::UseTree::Rename(name) => leaves.push(leaf(prefix, &name.ident, &name.rename)),
        syn::UseTree::Glob(_) => leaves.push((prefix.clone(), "*".to_owned())),
    }
}

fn leaf(prefix: &[String], name: &syn::Ident, here: &syn::Ident) -> (ModulePath, String) {
    let mut path = prefix.to_vec();
    path.push(name.to_string());
    (path, here.to_string())
}

/// A path from the crate's root. One that begins with neither `crate`, `self` nor `super` is that
/// of a child module in a `use` (2018 paths), else of no interest.
fn absolute(module: &[String], path: &[String], is_use: bool) -> Option<ModulePath> {
    let mut base = module.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        _ if is_use || rest.len() > 1 => {}
        _ => return None,
    }
    base.extend_from_slice(rest);
    Some(base)
}
