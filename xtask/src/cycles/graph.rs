//! Strongly connected components (Tarjan's algorithm).

use std::collections::HashSet;

/// The groups of two or more nodes that reach each other, the largest first.
pub fn cycles(arrows: &[HashSet<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        arrows,
        number: vec![None; arrows.len()],
        lowest: vec![0; arrows.len()],
        on_stack: vec![false; arrows.len()],
        stack: Vec::new(),
        count: 0,
        found: Vec::new(),
    };
    for node in 0..arrows.len() {
        if search.number[node].is_none() {
            search.visit(node);
        }
    }
    search
        .found
        .sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
    search.found
}

struct Search<'a> {
    arrows: &'a [HashSet<usize>],
    number: Vec<Option<usize>>,
    lowest: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    count: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        self.number[node] = Some(self.count);
        self.lowest[node] = self.count;
        self.count += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
        for &next in &self.arrows[node] {
            match self.number[next] {
                None => {
                    self.visit(next);
                    self.lowest[node] = self.lowest[node].min(self.lowest[next]);
                }
                Some(number) if self.on_stack[next] => {
                    self.lowest[node] = self.lowest[node].min(number);
                }
                Some(_) => {}
            }
        }
        if self.number[node] == Some(self.lowest[node]) {
            self.take(node);
        }
    }

    fn take(&mut self, root: usize) {
        let mut cycle = Vec::new();
        while let Some(node) = self.stack.pop() {
            self.on_stack[node] = false;
            cycle.push(node);
            if node == root {
                break;
            }
        }
        cycle.sort_unstable();
        if cycle.len() > 1 {
            self.found.push(cycle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cycles;

    #[test]
    fn two_cycles_joined_by_one_import_are_reported_as_two() {
        let arrows: Vec<_> = [vec![1], vec![0, 2], vec![3], vec![4], vec![2]]
            .into_iter()
            .map(|to| to.into_iter().collect())
            .collect();
        assert_eq!(cycles(&arrows), [vec![2, 3, 4], vec![0, 1]]);
    }
}
