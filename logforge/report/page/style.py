"""The page's style: system fonts, light and dark, a table of contents at the side that moves to the top on narrow screens."""

CSS = """
:root{color-scheme:light dark;--ground:#fff;--text:#1c2330;--soft:#5b6575;--line:#dde2ea;--panel:#f6f8fb;--link:#0b5cad;
--good:#1a7f4b;--note:#8a6100;--alarm:#c0262d;--s0:#3b78c4;--s1:#d9822b;--s2:#8f99a8;--s3:#5aa469;--s4:#8e63b8;--s5:#c25b7c}
@media(prefers-color-scheme:dark){:root{--ground:#14181f;--text:#e3e8f0;--soft:#9aa5b5;--line:#2c3442;--panel:#1c222c;
--link:#7db8f5;--good:#57c98a;--note:#e0b04a;--alarm:#ff7b7b;--s0:#6aa5ea;--s1:#eda257;--s2:#7d8797;--s3:#7cc78c;--s4:#b493db;--s5:#e28aa5}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;
display:grid;grid-template-columns:250px minmax(0,1fr)}
nav{position:sticky;top:0;height:100vh;overflow:auto;padding:20px 14px;background:var(--panel);border-right:1px solid var(--line);font-size:14px}
nav ol{list-style:none;margin:12px 0;padding:0}
nav a{display:block;padding:3px 6px;border-radius:5px;color:var(--text);text-decoration:none}
nav a:hover,nav a:focus{background:var(--line)}
main{padding:24px 32px 80px;max-width:1080px;min-width:0}
h1{margin:0;font-size:26px}
h2{font-size:19px;margin:0 0 6px}
h3{font-size:14px;margin:18px 0 4px}
a{color:var(--link)}
section{padding:22px 0;border-top:1px solid var(--line);scroll-margin-top:8px}
.overview{border:1px solid var(--line);border-radius:8px;background:var(--panel);padding:14px 18px;margin:18px 0}
.about{color:var(--soft);margin:2px 0 10px;max-width:88ch}
.findings{list-style:none;padding:0;margin:8px 0}
.findings li{margin:3px 0;padding-left:26px;text-indent:-26px;overflow-wrap:anywhere}
.badge{display:inline-block;width:18px;height:18px;margin-right:8px;border-radius:50%;font:bold 11px/18px system-ui,sans-serif;
text-align:center;text-indent:0;color:var(--ground);background:var(--good)}
.badge.note{background:var(--note)}
.badge.alarm{background:var(--alarm)}
.numbers{display:grid;grid-template-columns:repeat(auto-fill,minmax(165px,1fr));gap:10px;margin:12px 0}
.number{border:1px solid var(--line);border-radius:8px;padding:8px 12px;overflow-wrap:anywhere}
.number b{display:block;font-size:19px;font-variant-numeric:tabular-nums}
.number small{display:block;color:var(--soft)}
.number span{color:var(--soft);font-size:13px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:4px 12px 4px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);max-width:38ch;overflow-wrap:break-word;white-space:pre-line}
th{color:var(--soft);font-weight:600;white-space:nowrap}
.n{text-align:right}
.none{color:var(--soft);margin:2px 0}
figure{margin:14px 0}
figcaption{font-size:14px;font-weight:600;margin-bottom:4px}
svg{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}
svg text{fill:var(--text)}
svg line{stroke:var(--line)}
.s0{fill:var(--s0);background:var(--s0)}.s1{fill:var(--s1);background:var(--s1)}.s2{fill:var(--s2);background:var(--s2)}
.s3{fill:var(--s3);background:var(--s3)}.s4{fill:var(--s4);background:var(--s4)}.s5{fill:var(--s5);background:var(--s5)}
.cell{fill:var(--s0);stroke:var(--line)}
.legend span{margin-right:16px;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:10px;height:10px;margin-right:6px;border-radius:2px}
details{margin:4px 0}
summary{cursor:pointer;color:var(--soft);font-size:13px}
pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:10px;overflow-x:auto;font-size:12px;white-space:pre-wrap}
@media(max-width:860px){body{display:block}nav{position:static;height:auto;border-right:0;border-bottom:1px solid var(--line)}
nav ol{columns:2}main{padding:16px}}
@media print{body{display:block}nav{display:none}}
"""
