//! A function's number of parameters, with tuples counted by their elements.

use syn::visit::Visit;

use super::modules::Crate;

/// Functions with more than `max` parameters, as `file:name(count)`.
pub fn above(parsed: &Crate, max: usize) -> Vec<String> {
    let mut found = Vec::new();
    for module in &parsed.files {
        let mut functions = Functions {
            max,
            file: &module.name,
            found: &mut found,
        };
        functions.visit_file(&module.syntax);
    }
    found
}

struct Functions<'a> {
    max: usize,
    file: &'a str,
    found: &'a mut Vec<String>,
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        // A function that C calls has the arity that C gives it.
        if signature.abi.is_some() {
            return;
        }
        let count = signature.inputs.iter().map(parameters).sum::<usize>();
        if count > self.max {
            let (file, name) = (self.file, &signature.ident);
            self.found.push(format!("{file}:{name}({count})"));
        }
    }
}

fn parameters(input: &syn::FnArg) -> usize {
    match input {
        syn::FnArg::Receiver(_) => 0,
        syn::FnArg::Typed(typed) => values(&typed.ty),
    }
}

/// Counts a tuple's elements, also behind a reference.
fn values(ty: &syn::Type) -> usize {
    match ty {
        syn::Type::Tuple(tuple) => tuple.elems.iter().map(values).sum(),
        syn::Type::Reference(reference) => values(&reference.elem),
        syn::Type::Paren(inner) => values(&inner.elem),
        _ => 1,
    }
}
