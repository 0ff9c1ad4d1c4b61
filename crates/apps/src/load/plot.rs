//! A scatter plot as SVG.

use std::fmt::Write;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 450.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 50.0;
const TOP: f64 = 30.0;
const RIGHT: f64 = 20.0;

/// A round number that is at least `value`.
fn round_up(value: f64) -> f64 {
    let scale = 10f64.powf(value.max(1.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * scale >= value);
    step.unwrap_or(10.0) * scale
}

/// Draws a point for each value over its index, with axes.
pub fn scatter(title: &str, x_label: &str, y_label: &str, values: &[u64]) -> String {
    let largest = values.iter().copied().max().unwrap_or(1).max(1) as f64;
    let (x_max, y_max) = (round_up(values.len() as f64), round_up(largest));
    let x = |at: f64| LEFT + at / x_max * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / y_max * (HEIGHT - BOTTOM - TOP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{}\" y=\"18\" text-anchor=\"middle\" font-size=\"14\">{title}</text>\n",
        WIDTH / 2.0
    );
    for tick in 0..=4 {
        let share = f64::from(tick) / 4.0;
        let (at, value) = (share * x_max, share * y_max);
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{2:.1}\" y2=\"{2:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{}\" y=\"{3:.1}\" text-anchor=\"end\">{value}</text>\n\
             <text x=\"{4:.1}\" y=\"{5}\" text-anchor=\"middle\">{at}</text>\n",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y(value),
            y(value) + 4.0,
            x(at),
            HEIGHT - BOTTOM + 18.0,
        );
    }
    let _ = write!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{x_label}</text>\n\
         <text x=\"16\" y=\"{2}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {2})\">\
         {y_label}</text>\n<g fill=\"#0b57a4\" fill-opacity=\".6\">\n",
        WIDTH / 2.0,
        HEIGHT - 10.0,
        HEIGHT / 2.0
    );
    for (at, value) in values.iter().enumerate() {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.6\"/>",
            x(at as f64),
            y(*value as f64)
        );
    }
    out.push_str("</g>\n</svg>\n");
    out
}
