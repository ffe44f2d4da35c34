'use strict';
// The forms of the calculator and of the halo planner. engine.js holds the library, compiled for the browser; nothing is fetched.

const takes = {counts: 1, root: 2, reduce: 4, width: 16, by: 32, peers: 64, graph: 128, target: 256};

function show(answer) {
  const picture = document.getElementById('picture'), text = document.getElementById('text');
  picture.innerHTML = answer.error ? '' : answer.picture;
  text.textContent = answer.error || answer.text;
  text.className = answer.error ? 'error' : '';
}

// The fields of the form as options: text, numbers, check boxes.
function options(form) {
  const result = {};
  for (const field of form.elements) {
    if (!field.name || field.closest('[hidden]')) continue;
    if (field.type === 'checkbox') result[field.name] = field.checked;
    else if (field.type === 'number' || field.type === 'range') result[field.name] = Number(field.value);
    else result[field.name] = field.value;
  }
  return result;
}

function startCalculator(engine, examples) {
  const form = document.getElementById('calculator');
  const operations = JSON.parse(engine.ccall('mpigrad_operations', 'string', [], []));
  for (const each of operations) form.op.add(new Option(each.name));
  const refresh = () => {
    const of = operations.find(each => each.name === form.op.value);
    for (const field of form.querySelectorAll('[data-takes]')) field.hidden = !(of.takes & takes[field.dataset.takes]);
    show(JSON.parse(engine.ccall('mpigrad_adjoint', 'string', ['string'], [JSON.stringify(options(form))])));
  };
  form.op.addEventListener('change', () => {
    const example = examples[form.op.value];
    for (const field of form.elements)
      if (field.name && field.name !== 'op') {
        if (field.type === 'checkbox') field.checked = false;
        else if (field.name in example) field.value = example[field.name];
        else field.value = field.dataset.usual || '';
      }
    refresh();
  });
  form.addEventListener('input', event => { if (event.target !== form.op) refresh(); });
  form.addEventListener('submit', event => event.preventDefault());
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (examples[wanted]) form.op.value = wanted;
  form.op.dispatchEvent(new Event('change'));
}

function startHalo(engine) {
  const form = document.getElementById('halo');
  const refresh = () => {
    for (const field of form.querySelectorAll('input[type=range]')) field.parentElement.querySelector('output').value = field.value;
    const asked = options(form);
    if (!asked.transposed) asked.output_padding = 0;
    show(JSON.parse(engine.ccall('mpigrad_halo', 'string', ['string'], [JSON.stringify(asked)])));
  };
  form.addEventListener('input', refresh);
  form.addEventListener('submit', event => event.preventDefault());
  refresh();
}

function startQuiz(questions) {
  const place = document.getElementById('quiz'), score = document.getElementById('score');
  let right = 0, answered = 0;
  questions.forEach((each, number) => {
    const box = document.createElement('div');
    box.className = 'question';
    const title = document.createElement('p');
    title.textContent = `${number + 1}. ${each.question}`;
    const why = document.createElement('p');
    const buttons = each.answers.map((answer, i) => {
      const button = document.createElement('button');
      button.textContent = answer;
      button.addEventListener('click', () => {
        if (why.textContent) return;
        button.className = i === each.right ? 'right' : 'wrong';
        buttons[each.right].className = 'right';
        why.textContent = each.why;
        answered += 1;
        if (i === each.right) right += 1;
        score.textContent = `${right} of ${answered} right` + (answered === questions.length ? '. That was all.' : '');
      });
      return button;
    });
    box.append(title, ...buttons, why);
    place.append(box);
  });
}

if (document.getElementById('quiz')) startQuiz(quizQuestions);
const tool = document.querySelector('form.tool');
if (tool && typeof mpigradEngine === 'undefined') {
  show({error: 'This copy of the site was made without Emscripten. The pages of the operations show recorded examples.'});
} else if (tool) {
  mpigradEngine().then(engine => tool.id === 'halo' ? startHalo(engine) : startCalculator(engine, calculatorExamples));
}
