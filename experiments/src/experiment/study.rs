//! A study: what is varied (cases), what is measured of each run, and the tables, bars and numbers that follow.
//!
//! Invariant: rows are in the order of the cases, runs in the order of the seeds; a study does not depend on how many
//! threads ran it.

use super::{Mean, Table};
use crate::figures::Bars;

/// One case, and what each seed gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<C, M> {
    /// What this row varies.
    pub case: C,
    /// By seed.
    pub runs: Vec<M>,
}

impl<C, M> Row<C, M> {
    /// A measure of each run.
    pub fn values(&self, of: impl Fn(&M) -> f64) -> Vec<f64> {
        self.runs.iter().map(of).collect()
    }

    /// Mean over the seeds.
    pub fn mean(&self, of: impl Fn(&M) -> f64) -> Mean {
        Mean::of(self.values(of))
    }

    /// Mean over the seeds, without its interval.
    pub fn average(&self, of: impl Fn(&M) -> f64) -> f64 {
        self.mean(of).mean
    }

    /// The greatest over the seeds, of numbers from 0 on.
    pub fn greatest(&self, of: impl Fn(&M) -> f64) -> f64 {
        self.runs.iter().map(of).fold(0.0, f64::max)
    }

    /// The least over the seeds.
    pub fn least(&self, of: impl Fn(&M) -> f64) -> f64 {
        self.runs.iter().map(of).fold(f64::INFINITY, f64::min)
    }
}

/// All rows of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Study<C, M> {
    /// By case.
    pub rows: Vec<Row<C, M>>,
}

impl<C, M> Study<C, M> {
    /// The row of a case.
    ///
    /// # Panics
    /// Where no such case was run.
    pub fn row(&self, is_it: impl Fn(&C) -> bool) -> &Row<C, M> {
        let row = self.rows.iter().find(|row| is_it(&row.case));
        row.expect("every case was run")
    }

    /// The row of exactly this case.
    ///
    /// # Panics
    /// Where it was not run.
    pub fn at(&self, case: C) -> &Row<C, M>
    where
        C: PartialEq,
    {
        self.row(|of| *of == case)
    }

    /// A table of all rows that has no column yet.
    pub fn table(&self, name: &str, title: impl Into<String>) -> Columns<'_, C, M> {
        Columns::new(self.rows.iter().collect(), name, title)
    }

    /// A bar for each row: the mean of a measure.
    pub fn bars(&self, name: &str, of: impl Fn(&M) -> f64) -> Bars {
        Bars::new(name, self.rows.iter().map(|row| row.mean(&of)))
    }
}

/// A table to which columns are added, from the left to the right.
pub struct Columns<'a, C, M> {
    rows: Vec<&'a Row<C, M>>,
    table: Table,
}

impl<'a, C, M> Columns<'a, C, M> {
    /// A table of these rows.
    pub fn new(rows: Vec<&'a Row<C, M>>, name: &str, title: impl Into<String>) -> Self {
        let mut table = Table::new(name, title, [""; 0]);
        table.rows = vec![Vec::new(); rows.len()];
        Self { rows, table }
    }

    /// A column of anything.
    pub fn column(mut self, head: &str, cell: impl Fn(&Row<C, M>) -> String) -> Self {
        self.table.columns.push(head.to_owned());
        for (cells, row) in self.table.rows.iter_mut().zip(&self.rows) {
            cells.push(cell(row));
        }
        self
    }

    /// Several columns.
    pub fn columns<'h>(
        self,
        columns: impl IntoIterator<Item = (&'h str, impl Fn(&Row<C, M>) -> String)>,
    ) -> Self {
        let add = |table: Self, (head, cell)| table.column(head, cell);
        columns.into_iter().fold(self, add)
    }

    /// A column of what the cases are.
    pub fn case<T: ToString>(self, head: &str, cell: impl Fn(&C) -> T) -> Self {
        self.column(head, |row| cell(&row.case).to_string())
    }

    /// A column of means and their intervals, with so many decimals.
    pub fn mean(self, head: &str, decimals: usize, of: impl Fn(&M) -> f64) -> Self {
        self.column(head, |row| row.mean(&of).text(decimals))
    }

    /// The table.
    pub fn done(self) -> Table {
        self.table
    }
}

/// Each of one with each of another, in the order of both.
pub fn each_with<A: Clone, B: Clone>(one: &[A], other: &[B]) -> Vec<(A, B)> {
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    pairs.map(|(a, b)| (a.clone(), b.clone())).collect()
}

/// Numbers one after the other, each written so.
pub fn listed(numbers: &[f64], write: impl Fn(f64) -> String) -> String {
    let texts: Vec<String> = numbers.iter().map(|number| write(*number)).collect();
    texts.join(" ")
}
