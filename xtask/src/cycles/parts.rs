//! Methods of a type that composes parts, and need no more than one of them.
//!
//! A method of that kind belongs to the part, so that the part can be read and tested alone. The
//! methods that other crates call are left out: they are the interface.

use syn::visit::Visit;

use super::modules::Crate;

/// A crate, the type, and the modules that may have methods of it.
const COMPOSED: &[(&str, &str, &[&str])] = &[("posix", "Process", &["process", "calls"])];

pub fn check(name: &str, parsed: &Crate) -> Vec<String> {
    let Some((_, composed, modules)) = COMPOSED.iter().find(|(krate, ..)| *krate == name) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for module in &parsed.files {
        let mut narrow = Vec::new();
        let mut impls = Impls {
            composed,
            narrow: &mut narrow,
            is_found: false,
        };
        impls.visit_file(&module.syntax);
        let is_placed = module
            .path
            .first()
            .is_some_and(|first| modules.contains(&first.as_str()));
        let file = &module.name;
        if impls.is_found && !is_placed {
            findings.push(format!(
                "crates/{name}/src/{file}: methods of {composed} are in {}",
                modules.join(" and ")
            ));
        }
        findings.extend(narrow.into_iter().map(|method| {
            format!("crates/{name}/src/{file}: {method}, and should be a method of that part")
        }));
    }
    findings
}

struct Impls<'a> {
    composed: &'a str,
    /// Methods that use one part or none, with that part.
    narrow: &'a mut Vec<String>,
    is_found: bool,
}

impl<'ast> Visit<'ast> for Impls<'_> {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let is_of_type = matches!(&*item.self_ty, syn::Type::Path(of)
            if of.path.segments.last().is_some_and(|last| last.ident == self.composed));
        if !is_of_type || item.trait_.is_some() {
            return;
        }
        self.is_found = true;
        for part in &item.items {
            if let syn::ImplItem::Fn(method) = part
                && !matches!(method.vis, syn::Visibility::Public(_))
                && method.sig.receiver().is_some()
            {
                self.look_at(method);
            }
        }
    }
}

impl Impls<'_> {
    fn look_at(&mut self, method: &syn::ImplItemFn) {
        let mut uses = Uses::default();
        uses.visit_block(&method.block);
        uses.parts.sort();
        uses.parts.dedup();
        if uses.is_whole || uses.parts.len() > 1 {
            return;
        }
        let part = uses.parts.first().map_or("nothing", String::as_str);
        let (kind, name) = (self.composed, &method.sig.ident);
        self.narrow
            .push(format!("{kind}::{name} needs {part} alone"));
    }
}

/// The use that a method makes of `self`.
#[derive(Default)]
struct Uses {
    parts: Vec<String>,
    /// The method calls one of `self`, or hands it on.
    is_whole: bool,
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_expr_field(&mut self, field: &'ast syn::ExprField) {
        match (&field.member, is_self(&field.base)) {
            (syn::Member::Named(part), true) => self.parts.push(part.to_string()),
            _ => syn::visit::visit_expr_field(self, field),
        }
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        self.is_whole |= path.path.is_ident("self");
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let tokens = item.tokens.to_string();
        self.is_whole |= tokens
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| word == "self");
    }
}

fn is_self(expr: &syn::Expr) -> bool {
    matches!(expr, syn::Expr::Path(path) if path.path.is_ident("self"))
}

#[cfg(test)]
mod tests {
    use super::super::modules::Module;
    use super::*;

    fn found(text: &str, folder: &str) -> Vec<String> {
        let file = Module {
            path: vec![folder.to_owned()],
            name: format!("{folder}.rs"),
            syntax: syn::parse_file(text).unwrap(),
        };
        check("posix", &Crate::of(vec![file]))
    }

    #[test]
    fn a_method_of_one_part_is_found_and_one_that_composes_is_not() {
        let text = "impl Process {
            fn narrow(&self) -> u64 { let it = || self.kernel.now(); it() }
            fn idle(&self) -> u64 { 7 }
            fn wide(&self) { self.table.take(self.kernel.now()); }
            fn calls(&self) { self.wide(); }
            fn hands_on(&self) { let _ = vec![1]; take(self) }
            fn says(&self) { println!(\"{}\", self.kernel.now()); }
            pub fn interface(&self) -> u64 { self.kernel.now() }
            fn new() -> Process { make() }
        }";
        let found = found(text, "calls");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("Process::narrow needs kernel alone"));
        assert!(found[1].contains("Process::idle needs nothing alone"));
    }

    #[test]
    fn methods_outside_of_their_modules_are_found() {
        let text = "impl Process { pub fn it(&self) {} }";
        assert_eq!(found(text, "process"), Vec::<String>::new());
        assert_eq!(found(text, "socket").len(), 1);
    }
}
