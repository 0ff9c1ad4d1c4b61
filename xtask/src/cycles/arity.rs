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

/// Counts a tuple's elements, also behind a reference and inside another type: an
/// `Option<(A, B)>`, a `&[(A, B)]` and an `impl Iterator<Item = (A, B)>` are two each.
fn values(ty: &syn::Type) -> usize {
    match ty {
        syn::Type::Tuple(tuple) => tuple.elems.iter().map(values).sum(),
        syn::Type::Reference(reference) => values(&reference.elem),
        syn::Type::Ptr(pointer) => values(&pointer.elem),
        syn::Type::Paren(inner) => values(&inner.elem),
        syn::Type::Group(inner) => values(&inner.elem),
        syn::Type::Array(array) => values(&array.elem),
        syn::Type::Slice(slice) => values(&slice.elem),
        syn::Type::Path(path) => of_path(&path.path),
        syn::Type::ImplTrait(bounded) => of_bounds(&bounded.bounds),
        syn::Type::TraitObject(bounded) => of_bounds(&bounded.bounds),
        _ => 1,
    }
}

fn of_bounds<'a>(bounds: impl IntoIterator<Item = &'a syn::TypeParamBound>) -> usize {
    let counts = bounds.into_iter().map(|bound| match bound {
        syn::TypeParamBound::Trait(bound) => of_path(&bound.path),
        _ => 1,
    });
    counts.max().unwrap_or(1)
}

/// Counts the widest of a path's type arguments. The parameters of a closure are none of the
/// function's.
fn of_path(path: &syn::Path) -> usize {
    let arguments = path
        .segments
        .iter()
        .flat_map(|segment| match &segment.arguments {
            syn::PathArguments::AngleBracketed(list) => list.args.iter().collect(),
            _ => Vec::new(),
        });
    let counts = arguments.map(|argument| match argument {
        syn::GenericArgument::Type(ty) => values(ty),
        syn::GenericArgument::AssocType(named) => values(&named.ty),
        _ => 1,
    });
    counts.max().map_or(1, |widest| widest.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arity(text: &str) -> usize {
        let signature: syn::Signature = syn::parse_str(text).unwrap();
        signature.inputs.iter().map(parameters).sum()
    }

    #[test]
    fn tuples_count_as_what_they_hold_wherever_they_stand() {
        let table = [
            ("fn f()", 0),
            ("fn f(&self, a: u8)", 1),
            ("fn f(a: u8, b: (u8, u16))", 3),
            ("fn f(a: (u8, (u8, u8)))", 3),
            ("fn f(a: &(u8, u8), b: &mut (u8, u8))", 4),
            ("fn f(a: *const (u8, u8))", 2),
            ("fn f(a: Option<(u8, u8)>)", 2),
            ("fn f(a: Option<&(u8, Option<(u8, u8)>)>)", 3),
            ("fn f(a: [(u8, u8); 4])", 2),
            ("fn f(a: &[(u8, u8, u8)])", 3),
            ("fn f(a: Vec<(u8, u8)>)", 2),
            ("fn f(a: impl Iterator<Item = (u8, u8)>)", 2),
            ("fn f(a: &mut dyn Iterator<Item = (u8, u8)>)", 2),
            ("fn f(a: Result<(u8, u8), u8>)", 2),
            ("fn f(a: Result<(), u8>, b: Option<()>)", 2),
            ("fn f(a: impl Fn(u8, u8) -> u8, b: &dyn Fn((u8, u8)))", 2),
        ];
        for (text, count) in table {
            assert_eq!(arity(text), count, "{text}");
        }
    }
}
