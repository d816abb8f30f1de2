"""Drug names by the stems of their international nonproprietary names (INN), and frequent names without a stem.

The stems are the WHO's (The use of stems in the selection of INN, 2018), narrowed where plain words end alike: "-vir"
to its families, since French has "servir".
"""

from __future__ import annotations

from data.dedup.lists import words

STEMS = words("""
    olol alol pril prilat sartan statin statina azole azol cillin cilina mycin micin micina cycline floxacin
    oxacin xaban gatran parin dipine dipino dipin gliptin gliflozin glitazone glutide natide reotide tidine
    setron triptan azepam zolam barbital caine acurium curonium dronate dronic imab umab zumab ximab omab amab
    tinib anib enib afenib ciclib navir tegravir buvir ciclovir cyclovir amivir previr asvir desivir fovir
    vudine lukast profen profeno coxib oxicam fenac thiazide semide lactone asone isone olone onide salmeterol
    formoterol vilanterol indacaterol tropium phylline azosin losin dosin afil platin rubicin taxel tecan
    trexate trexed poside peridone piprazole zapine tiapine oxetine triptyline ipramine azine peridol orphine
    codone morphone fentanil fentanyl madol tadol oxone trexone orelin relix grastim poetin kinra kacin bactam
    penem fungin oquine arabine citabine uracil mustine fosfamide rolimus lastine tadine rizine stigmine flurane
    gabalin racetam vaptan fibrate ogrel ugrel teplase gliclazide glipizide clamide pirox mectin nidazole
    bendazole quinavir cromil terone estradiol
""")
NO_DRUGS = words("april avril magazine magazines webmagazine emagazine ozone lactone")
NAMES = words("""
    abatacept acetaminophen acetylcysteine adalimumab adenosine adrenaline aflibercept albumin albuterol
    aldosterone alfentanil allopurinol alprostadil amiodarone amlodipine amphetamine aspart aspirin atropine
    azathioprine baclofen betahistine bisacodyl bleomycin botulinum bromocriptine bupropion buspirone caffeine
    calcitonin calcitriol cannabidiol captopril carbamazepine carbidopa carboplatin cefaclor chloral
    chloramphenicol chlorhexidine cholecalciferol ciclosporin cisplatin citalopram clindamycin clonidine
    clopidogrel clozapine codeine colchicine colistin cortisone cyclophosphamide cyclosporin cyclosporine
    dapagliflozin dapsone degludec denosumab desmopressin detemir dexamethasone dexmedetomidine
    dextroamphetamine digoxin diltiazem diphenhydramine dipyridamole disulfiram dobutamine docusate domperidone
    donepezil dopamine doxorubicin doxycycline dulaglutide efavirenz emtricitabine enoxaparin entacapone
    ephedrine epinephrine ergotamine escitalopram etanercept ethambutol ethinylestradiol etomidate ezetimibe
    fentanyl finasteride flecainide flumazenil folate furosemide gabapentin gentamicin glargine glatiramer
    glibenclamide gliclazide glimepiride glucagon glycopyrrolate guaifenesin haloperidol heparin hydralazine
    hydrocortisone hydroxychloroquine hydroxyurea hydroxyzine hyoscine ibuprofen insulin interferon ipratropium
    isoniazid isosorbide isotretinoin ivabradine ivermectin ketamine ketorolac lactulose lamotrigine leucovorin
    levetiracetam levodopa levonorgestrel levothyroxine lidocaine linezolid liothyronine lispro lithium
    loperamide loratadine mannitol melatonin memantine mesalamine mesalazine metamizole metformin methadone
    methimazole methotrexate methyldopa methylphenidate metoclopramide metolazone mexiletine minoxidil
    mirtazapine misoprostol modafinil morphine mycophenolate naloxone naltrexone naproxen nevirapine niacin
    nicorandil nicotine nitrofurantoin nitroglycerin nitroglycerine nitroprusside noradrenaline norepinephrine
    octreotide ondansetron oseltamivir oxybutynin oxycodone oxytocin pantoprazole papaverine paracetamol
    paroxetine penicillamine pentoxifylline permethrin phenobarbital phenylephrine phenytoin pilocarpine
    pioglitazone prednisolone prednisone primidone probenecid procainamide progesterone promethazine propofol
    propranolol propylthiouracil protamine pseudoephedrine pyrazinamide pyridostigmine quetiapine quinidine
    quinine ranolazine rasagiline remdesivir ribavirin rifampicin rifampin rifaximin riluzole risperidone
    ritonavir rivastigmine rocuronium ropinirole sacubitril salbutamol selegiline semaglutide senna sertraline
    sevelamer simethicone sitagliptin solifenacin spironolactone streptokinase succinylcholine sucralfate
    sufentanil sugammadex sulfamethoxazole sulfasalazine sumatriptan suxamethonium tacrolimus tamoxifen
    tamsulosin terbinafine terbutaline teriparatide testosterone thiamine thiopental thyroxine ticagrelor
    timolol tirzepatide tizanidine tobramycin tolterodine topiramate torasemide tramadol trazodone tretinoin
    trimethoprim valproate valproic vancomycin varenicline vasopressin vecuronium venlafaxine verapamil
    vinblastine vincristine warfarin zidovudine ziprasidone zoledronic zolpidem zonisamide zopiclone
    adderall advil aleve ambien ativan augmentin benadryl botox celebrex cialis claritin coumadin crestor
    cymbalta dilantin effexor eliquis entresto farxiga flonase glucophage humalog humira insulina januvia
    jardiance keppra keytruda klonopin lantus lasix levitra lexapro lipitor lovenox lyrica meridia motrin
    mounjaro mucinex neurontin nexium norvasc novolog nurofen ozempic panadol paxil paxlovid percocet
    phentermine plavix prilosec prozac remicade ritalin seroquel singulair spiriva suboxone synthroid tamiflu
    toradol tylenol valium valtrex ventolin viagra vicodin voltaren wegovy wellbutrin xanax xarelto zantac
    zithromax zocor zofran zoloft zyprexa zyrtec
""")
ENDINGS = tuple(sorted(STEMS)) + tuple(sorted(f"{stem}e" for stem in STEMS))
PREFIXES = ("cef", "ceph", "sulfa", "sulpha")
# Chinese names end (头孢: begin) in transcribed stems; the characters beside them tell the siblings apart.
HAN_STEMS = words("""
    洛尔 普利 沙坦 他汀 西林 霉素 沙星 拉唑 康唑 硝唑 地平 格列净 列汀
    单抗 替尼 洛韦 昔布 布洛芬 阿司匹林 华法林 胰岛素 二甲双胍 肝素
    地高辛 硝酸甘油 对乙酰氨基酚 呋塞米 螺内酯 泼尼松 地塞米松 吗啡 芬太尼 西泮 卡因 头孢
""")
HAN_PREFIX = "头孢"


def is_drug(word: str) -> bool:
    """Whether a lower-cased word is a drug's name, by list or by stem (a plural's "s" aside)."""
    if word in NO_DRUGS:
        return False
    if word in NAMES or (word.endswith("s") and word[:-1] in NAMES):
        return True
    if word.startswith(PREFIXES) and len(word) >= 8:
        return True
    return word.endswith(ENDINGS) and any(word.endswith(ending) and len(word) > len(ending) + 1 for ending in ENDINGS)
